"""The shop's customer pages: cart, checkout, orders, address, wish list."""

from __future__ import annotations

from html import escape

from prill.emulators.shop.pages import (
    PageError,
    Response,
    Route,
    ShopRequest,
    button_form,
    field,
    redirect,
    shop_page,
    table,
    whole_number,
)
from prill.emulators.shop.store import SHIPPING, Address, Product, ShopOrder, Store, money

_ADDRESS = {
    "street": "Street Address",
    "street2": "Street Address Line 2",
    "city": "City",
    "state": "State",
    "zip": "Zip Code",
    "country": "Country",
}


def login_page(request: ShopRequest, message: str = "") -> Response:
    """The form, or the account of who is signed in already."""
    if request.user is not None:
        return redirect("/customer/account/")
    wrong = f'<p class="wrong" role="alert">{escape(message)}</p>' if message else ""
    fields = field("Email", "login[username]", kind="email") + field(
        "Password", "login[password]", kind="password"
    )
    return shop_page(
        request,
        "Customer Login",
        wrong + button_form("/customer/account/login/", "Sign In", fields),
    )


def login(request: ShopRequest) -> Response:
    """Signs in, or says that it cannot."""
    token = request.store.sign_in(
        "shopping", request.form.get("login[username]", ""), request.form.get("login[password]", "")
    )
    if token is None:
        return login_page(
            request, "The account sign-in was incorrect. Please wait and try again later."
        )
    return redirect("/customer/account/", token)


def logout(request: ShopRequest) -> Response:
    """Signs out."""
    request.store.sign_out(request.session)
    return redirect("/", "")


def account(request: ShopRequest) -> Response:
    """The account page."""
    who = request.customer
    body = (
        '<section class="box"><h2>Contact '
        f"Information</h2><p>{escape(who.name)}<br>{escape(who.email)}</p></section>"
        f'{_address(who.address)}<p><a href="/customer/address/edit/">Edit Address</a></p>'
    )
    return shop_page(request, "My Account", body)


def address(request: ShopRequest) -> Response:
    """The address page."""
    body = (
        f'{_address(request.customer.address)}<p><a href="/customer/address/edit/">Edit '
        "Address</a></p>"
    )
    return shop_page(
        request,
        "Address Book",
        body,
        message="You saved the address." if "said" in request.query else "",
    )


def edit_address(request: ShopRequest) -> Response:
    """The form for it."""
    now = request.customer.address
    fields = "".join(field(label, name, getattr(now, name)) for name, label in _ADDRESS.items())
    return shop_page(
        request, "Edit Address", button_form("/customer/address/edit/", "Save Address", fields)
    )


def save_address(request: ShopRequest) -> Response:
    """Takes the new address; only the second line may be empty."""
    values = {name: request.form.get(name, "").strip() for name in _ADDRESS}
    if missing := [
        _ADDRESS[name] for name, value in values.items() if not value and name != "street2"
    ]:
        raise PageError(400, f"{missing[0]} is a required field.")
    request.customer.address = Address(**values)
    return redirect("/customer/address/?said=1")


def wishes(request: ShopRequest) -> Response:
    """The wish list."""
    items = [request.store.products[sku] for sku in request.customer.wishes]
    if not items:
        return shop_page(request, "My Wish List", "<p>You have no items in your wish list.</p>")
    rows = (
        (_link(product), money(product.price), _remove(product, "/wishlist/remove"))
        for product in items
    )
    return shop_page(request, "My Wish List", table(("Product", "Price", ""), rows, "Wish list"))


def add_wish(request: ShopRequest) -> Response:
    """One more wish."""
    product = _product(request)
    if product.sku not in request.customer.wishes:
        request.customer.wishes.append(product.sku)
    return redirect("/wishlist/")


def drop_wish(request: ShopRequest) -> Response:
    """One wish less."""
    if (sku := _product(request).sku) in request.customer.wishes:
        request.customer.wishes.remove(sku)
    return redirect("/wishlist/")


def cart(request: ShopRequest) -> Response:
    """The shopping cart."""
    items = _cart(request)
    if not items:
        return shop_page(
            request, "Shopping Cart", "<p>You have no items in your shopping cart.</p>"
        )
    rows = (
        (
            _link(product),
            money(product.price),
            str(quantity),
            money(product.price * quantity),
            _remove(product, "/checkout/cart/remove"),
        )
        for product, quantity in items
    )
    total = sum(product.price * quantity for product, quantity in items)
    body = table(("Item", "Price", "Qty", "Subtotal", ""), rows, "Shopping cart")
    body += f'<p>Subtotal: {money(total)}</p><p><a href="/checkout/">Proceed to Checkout</a></p>'
    return shop_page(request, "Shopping Cart", body)


def add_to_cart(request: ShopRequest) -> Response:
    """Some of a product, no more than there are."""
    product = _product(request)
    quantity = request.customer.cart.get(product.sku, 0) + whole_number(
        request.form.get("qty", "1"), "The quantity", 1
    )
    if quantity > product.stock:
        raise PageError(400, f"The requested quantity of {product.name} is not available.")
    request.customer.cart[product.sku] = quantity
    return redirect("/checkout/cart/")


def drop_from_cart(request: ShopRequest) -> Response:
    """None of a product."""
    request.customer.cart.pop(_product(request).sku, None)
    return redirect("/checkout/cart/")


def checkout(request: ShopRequest) -> Response:
    """The last look before buying."""
    items = _cart(request)
    if not items:
        return redirect("/checkout/cart/")
    total = sum(product.price * quantity for product, quantity in items) + SHIPPING
    lines = "".join(f"<li>{quantity} × {escape(product.name)}</li>" for product, quantity in items)
    body = (
        f"{_address(request.customer.address)}<ul>{lines}</ul><p>Flat rate shipping: "
        f"{money(SHIPPING)}</p>"
        '<p class="price">Order Total: '
        f"{money(total)}</p>{button_form('/checkout/', 'Place Order')}"
    )
    return shop_page(request, "Checkout", body)


def place_order(request: ShopRequest) -> Response:
    """Buys."""
    items = _cart(request)
    if not items:
        raise PageError(400, "Your shopping cart is empty.")
    for product, quantity in items:
        if quantity > product.stock:
            raise PageError(400, f"The requested quantity of {product.name} is not available.")
    return redirect(
        f"/checkout/success/?order={request.store.place_order(request.customer).number}"
    )


def bought(request: ShopRequest) -> Response:
    """Thanks, and the number of the order."""
    order = _order(request, request.query.get("order", ""))
    link = f'<a href="/sales/order/view/order_id/{order.number}/">{order.label}</a>'
    return shop_page(
        request, "Thank you for your purchase!", f"<p>Your order number is: {link}.</p>"
    )


def orders(request: ShopRequest) -> Response:
    """All orders of the account, the newest first."""
    own = sorted(
        (o for o in request.store.orders if o.email == request.user),
        key=lambda o: o.date,
        reverse=True,
    )
    rows = (
        (
            o.label,
            o.date[:10],
            money(o.total),
            escape(o.status),
            f'<a href="/sales/order/view/order_id/{o.number}/">View Order {o.label}</a>',
        )
        for o in own
    )
    return shop_page(
        request,
        "My Orders",
        table(("Order #", "Date", "Order Total", "Status", "Action"), rows, "Orders"),
    )


def order(request: ShopRequest) -> Response:
    """One order."""
    order = _order(request, request.parts["number"])
    note = f'<p class="box">{escape(order.note)}</p>' if order.note else ""
    body = (
        f"<p>Status: {escape(order.status)} · "
        f"{order.date[:10]}</p>{note}{order_lines(request.store, order)}"
    )
    return shop_page(request, f"Order # {order.label}", body)


def order_lines(store: Store, order: ShopOrder) -> str:
    """The items of an order, as customers and administrators see them."""
    rows = (
        (
            escape(store.products[sku].name),
            escape(sku),
            money(price),
            f"Ordered {quantity}",
            money(price * quantity),
        )
        for sku, quantity, price in order.lines
    )
    head = ("Product Name", "SKU", "Price", "Qty", "Subtotal")
    return (
        f'<div class="order-details-items ordered">{table(head, rows, "Items ordered")}'
        f"<p>Shipping: {money(SHIPPING)}</p><p>Grand Total: {money(order.total)}</p></div>"
    )


def _product(request: ShopRequest) -> Product:
    product = request.store.products.get(request.parts["sku"])
    if product is None:
        raise PageError(404, "There is no such product.")
    return product


def _order(request: ShopRequest, number: str) -> ShopOrder:
    for order in request.store.orders:
        if str(order.number) == number and order.email == request.user:
            return order
    raise PageError(404, "There is no such order.")


def _cart(request: ShopRequest) -> list[tuple[Product, int]]:
    return [
        (request.store.products[sku], quantity) for sku, quantity in request.customer.cart.items()
    ]


def _link(product: Product) -> str:
    return f'<a href="/{product.slug}.html">{escape(product.name)}</a>'


def _remove(product: Product, address: str) -> str:
    name = escape(f"Remove {product.name}")
    return (
        f'<form method="post" action="{address}/{product.sku}"><button '
        f'aria-label="{name}">Remove</button></form>'
    )


def _address(where: Address) -> str:
    lines = (
        where.street,
        where.street2,
        f"{where.city}, {where.state}, {where.zip}",
        where.country,
    )
    text = "<br>".join(escape(line) for line in lines if line)
    return "".join(
        f'<section class="box box-address-{use}"><h2>Default {use.capitalize()} Address</h2>'
        f'<address class="box-content">{text}</address></section>'
        for use in ("billing", "shipping")
    )


ROUTES = (
    Route("GET", "/customer/account/login", login_page),
    Route("POST", "/customer/account/login", login),
    Route("GET", "/customer/account/logout", logout),
    Route("GET", "/customer/account", account, private=True),
    Route("GET", "/customer/address", address, private=True),
    Route("GET", "/customer/address/edit", edit_address, private=True),
    Route("POST", "/customer/address/edit", save_address, private=True),
    Route("GET", "/wishlist", wishes, private=True),
    Route("POST", "/wishlist/add/{sku}", add_wish, private=True),
    Route("POST", "/wishlist/remove/{sku}", drop_wish, private=True),
    Route("GET", "/checkout/cart", cart, private=True),
    Route("POST", "/checkout/cart/add/{sku}", add_to_cart, private=True),
    Route("POST", "/checkout/cart/remove/{sku}", drop_from_cart, private=True),
    Route("GET", "/checkout", checkout, private=True),
    Route("POST", "/checkout", place_order, private=True),
    Route("GET", "/checkout/success", bought, private=True),
    Route("GET", "/sales/order/history", orders, private=True),
    Route("GET", "/sales/order/view/order_id/{number}", order, private=True),
)
