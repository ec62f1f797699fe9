"""The shop's pages for those who are signed in: cart, checkout, orders, address, wish list."""

from __future__ import annotations

from html import escape

from prill.testing.shop.pages import Answer, Ask, Refused, Route, button_form, field, redirect, shop_page, table, whole
from prill.testing.shop.store import SHIPPING, Address, Order, Product, Store, money

_ADDRESS = {
    "street": "Street Address",
    "street2": "Street Address Line 2",
    "city": "City",
    "state": "State",
    "zip": "Zip Code",
    "country": "Country",
}


def login_page(ask: Ask, said: str = "") -> Answer:
    """The form, or the account of who is signed in already."""
    if ask.user is not None:
        return redirect("/customer/account/")
    wrong = f'<p class="wrong" role="alert">{escape(said)}</p>' if said else ""
    fields = field("Email", "login[username]", kind="email") + field("Password", "login[password]", kind="password")
    return shop_page(ask, "Customer Login", wrong + button_form("/customer/account/login/", "Sign In", fields))


def login(ask: Ask) -> Answer:
    """Signs in, or says that it cannot."""
    token = ask.store.sign_in("shopping", ask.form.get("login[username]", ""), ask.form.get("login[password]", ""))
    if token is None:
        return login_page(ask, "The account sign-in was incorrect. Please wait and try again later.")
    return redirect("/customer/account/", token)


def logout(ask: Ask) -> Answer:
    """Signs out."""
    ask.store.sign_out(ask.session)
    return redirect("/", "")


def account(ask: Ask) -> Answer:
    """Who one is."""
    who = ask.customer
    body = (
        f'<section class="box"><h2>Contact Information</h2><p>{escape(who.name)}<br>{escape(who.email)}</p></section>'
        f'{_address(who.address)}<p><a href="/customer/address/edit/">Edit Address</a></p>'
    )
    return shop_page(ask, "My Account", body)


def address(ask: Ask) -> Answer:
    """Where one lives."""
    body = f'{_address(ask.customer.address)}<p><a href="/customer/address/edit/">Edit Address</a></p>'
    return shop_page(ask, "Address Book", body, said="You saved the address." if "said" in ask.query else "")


def edit_address(ask: Ask) -> Answer:
    """The form for it."""
    now = ask.customer.address
    fields = "".join(field(label, name, getattr(now, name)) for name, label in _ADDRESS.items())
    return shop_page(ask, "Edit Address", button_form("/customer/address/edit/", "Save Address", fields))


def save_address(ask: Ask) -> Answer:
    """Takes the new address; only the second line may be empty."""
    values = {name: ask.form.get(name, "").strip() for name in _ADDRESS}
    if missing := [_ADDRESS[name] for name, value in values.items() if not value and name != "street2"]:
        raise Refused(400, f"{missing[0]} is a required field.")
    ask.customer.address = Address(**values)
    return redirect("/customer/address/?said=1")


def wishes(ask: Ask) -> Answer:
    """The wish list."""
    items = [ask.store.products[sku] for sku in ask.customer.wishes]
    if not items:
        return shop_page(ask, "My Wish List", "<p>You have no items in your wish list.</p>")
    rows = ((_link(it), money(it.price), _remove(it, "/wishlist/remove")) for it in items)
    return shop_page(ask, "My Wish List", table(("Product", "Price", ""), rows, "Wish list"))


def add_wish(ask: Ask) -> Answer:
    """One more wish."""
    it = _product(ask)
    if it.sku not in ask.customer.wishes:
        ask.customer.wishes.append(it.sku)
    return redirect("/wishlist/")


def drop_wish(ask: Ask) -> Answer:
    """One wish less."""
    if (sku := _product(ask).sku) in ask.customer.wishes:
        ask.customer.wishes.remove(sku)
    return redirect("/wishlist/")


def cart(ask: Ask) -> Answer:
    """What one is about to buy."""
    items = _cart(ask)
    if not items:
        return shop_page(ask, "Shopping Cart", "<p>You have no items in your shopping cart.</p>")
    rows = (
        (_link(it), money(it.price), str(quantity), money(it.price * quantity), _remove(it, "/checkout/cart/remove"))
        for it, quantity in items
    )
    total = sum(it.price * quantity for it, quantity in items)
    body = table(("Item", "Price", "Qty", "Subtotal", ""), rows, "Shopping cart")
    body += f'<p>Subtotal: {money(total)}</p><p><a href="/checkout/">Proceed to Checkout</a></p>'
    return shop_page(ask, "Shopping Cart", body)


def add_to_cart(ask: Ask) -> Answer:
    """Some of a product, no more than there are."""
    it = _product(ask)
    wanted = ask.customer.cart.get(it.sku, 0) + whole(ask.form.get("qty", "1"), "The quantity", 1)
    if wanted > it.stock:
        raise Refused(400, f"The requested quantity of {it.name} is not available.")
    ask.customer.cart[it.sku] = wanted
    return redirect("/checkout/cart/")


def drop_from_cart(ask: Ask) -> Answer:
    """None of a product."""
    ask.customer.cart.pop(_product(ask).sku, None)
    return redirect("/checkout/cart/")


def checkout(ask: Ask) -> Answer:
    """The last look before buying."""
    items = _cart(ask)
    if not items:
        return redirect("/checkout/cart/")
    total = sum(it.price * quantity for it, quantity in items) + SHIPPING
    lines = "".join(f"<li>{quantity} × {escape(it.name)}</li>" for it, quantity in items)
    body = (
        f"{_address(ask.customer.address)}<ul>{lines}</ul><p>Flat rate shipping: {money(SHIPPING)}</p>"
        f'<p class="price">Order Total: {money(total)}</p>{button_form("/checkout/", "Place Order")}'
    )
    return shop_page(ask, "Checkout", body)


def place_order(ask: Ask) -> Answer:
    """Buys."""
    items = _cart(ask)
    if not items:
        raise Refused(400, "Your shopping cart is empty.")
    for it, quantity in items:
        if quantity > it.stock:
            raise Refused(400, f"The requested quantity of {it.name} is not available.")
    return redirect(f"/checkout/success/?order={ask.store.place_order(ask.customer).number}")


def bought(ask: Ask) -> Answer:
    """Thanks, and the number of the order."""
    order = _order(ask, ask.query.get("order", ""))
    link = f'<a href="/sales/order/view/order_id/{order.number}/">{order.label}</a>'
    return shop_page(ask, "Thank you for your purchase!", f"<p>Your order number is: {link}.</p>")


def orders(ask: Ask) -> Answer:
    """All orders of the account, the newest first."""
    own = sorted((o for o in ask.store.orders if o.email == ask.user), key=lambda o: o.date, reverse=True)
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
    return shop_page(ask, "My Orders", table(("Order #", "Date", "Order Total", "Status", "Action"), rows, "Orders"))


def order(ask: Ask) -> Answer:
    """One order."""
    it = _order(ask, ask.parts["number"])
    note = f'<p class="box">{escape(it.note)}</p>' if it.note else ""
    body = f"<p>Status: {escape(it.status)} · {it.date[:10]}</p>{note}{order_lines(ask.store, it)}"
    return shop_page(ask, f"Order # {it.label}", body)


def order_lines(store: Store, it: Order) -> str:
    """What was bought, as both sides of the shop show it."""
    rows = (
        (escape(store.products[sku].name), escape(sku), money(price), f"Ordered {quantity}", money(price * quantity))
        for sku, quantity, price in it.lines
    )
    head = ("Product Name", "SKU", "Price", "Qty", "Subtotal")
    return (
        f'<div class="order-details-items ordered">{table(head, rows, "Items ordered")}'
        f"<p>Shipping: {money(SHIPPING)}</p><p>Grand Total: {money(it.total)}</p></div>"
    )


def _product(ask: Ask) -> Product:
    it = ask.store.products.get(ask.parts["sku"])
    if it is None:
        raise Refused(404, "There is no such product.")
    return it


def _order(ask: Ask, number: str) -> Order:
    for it in ask.store.orders:
        if str(it.number) == number and it.email == ask.user:
            return it
    raise Refused(404, "There is no such order.")


def _cart(ask: Ask) -> list[tuple[Product, int]]:
    return [(ask.store.products[sku], quantity) for sku, quantity in ask.customer.cart.items()]


def _link(it: Product) -> str:
    return f'<a href="/{it.slug}.html">{escape(it.name)}</a>'


def _remove(it: Product, address: str) -> str:
    name = escape(f"Remove {it.name}")
    return f'<form method="post" action="{address}/{it.sku}"><button aria-label="{name}">Remove</button></form>'


def _address(where: Address) -> str:
    lines = (where.street, where.street2, f"{where.city}, {where.state}, {where.zip}", where.country)
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
