"""The shop's customer pages: cart, checkout, orders, address, wish list."""

from __future__ import annotations

from prill.emulators.shop.pages import (
    PageError,
    Response,
    Route,
    ShopRequest,
    SignIn,
    draw,
    redirect,
    shop_page,
    whole_number,
)
from prill.emulators.shop.store import Address, Product, ShopOrder

_ADDRESS = {
    "street": "Street Address",
    "street2": "Street Address Line 2",
    "city": "City",
    "state": "State",
    "zip": "Zip Code",
    "country": "Country",
}


SIGN_IN = SignIn(
    site="shopping",
    path="/customer/account/login/",
    leave_path="/customer/account/logout",
    home="/customer/account/",
    left="/",
    page=shop_page,
    title="Customer Login",
    button="Sign In",
    wrong="The account sign-in was incorrect. Please wait and try again later.",
    user="login[username]",
    password="login[password]",
    look={"label": "Email", "kind": "email"},
    is_skipped=True,
)


def account(request: ShopRequest) -> Response:
    """Shows the account page."""
    return _page(request, "My Account", "account", request.customer)


def address(request: ShopRequest) -> Response:
    """Shows the address page."""
    message = "You saved the address." if "said" in request.query else ""
    return _page(request, "Address Book", "address", request.customer, message=message)


def edit_address(request: ShopRequest) -> Response:
    """Shows the address form."""
    return _page(request, "Edit Address", "edit_address", request.customer.address, _ADDRESS)


def save_address(request: ShopRequest) -> Response:
    """Saves a new address; only its second line may be empty."""
    values = {name: request.form.get(name, "").strip() for name in _ADDRESS}
    if missing := [
        _ADDRESS[name] for name, value in values.items() if not value and name != "street2"
    ]:
        raise PageError(400, f"{missing[0]} is a required field.")
    request.customer.address = Address(**values)
    return redirect("/customer/address/?said=1")


def wishes(request: ShopRequest) -> Response:
    """Shows the wish list."""
    items = [request.store.products[sku] for sku in request.customer.wishes]
    return _page(request, "My Wish List", "wishes", items)


def add_wish(request: ShopRequest) -> Response:
    """Adds a product to the wish list."""
    product = _product(request)
    if product.sku not in request.customer.wishes:
        request.customer.wishes.append(product.sku)
    return redirect("/wishlist/")


def drop_wish(request: ShopRequest) -> Response:
    """Removes a product from the wish list."""
    if (sku := _product(request).sku) in request.customer.wishes:
        request.customer.wishes.remove(sku)
    return redirect("/wishlist/")


def cart(request: ShopRequest) -> Response:
    """Shows the shopping cart."""
    items = _cart(request)
    return _page(request, "Shopping Cart", "cart", items, _total(items))


def add_to_cart(request: ShopRequest) -> Response:
    """Adds a product to the cart, limited to the stock."""
    product = _product(request)
    quantity = request.customer.cart.get(product.sku, 0) + whole_number(
        request.form.get("qty", "1"), "The quantity", 1
    )
    if quantity > product.stock:
        raise PageError(400, f"The requested quantity of {product.name} is not available.")
    request.customer.cart[product.sku] = quantity
    return redirect("/checkout/cart/")


def drop_from_cart(request: ShopRequest) -> Response:
    """Removes a product from the cart."""
    request.customer.cart.pop(_product(request).sku, None)
    return redirect("/checkout/cart/")


def checkout(request: ShopRequest) -> Response:
    """Shows the checkout page."""
    items = _cart(request)
    if not items:
        return redirect("/checkout/cart/")
    return _page(request, "Checkout", "checkout", request.customer, items, _total(items))


def place_order(request: ShopRequest) -> Response:
    """Places the order."""
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
    """Shows the confirmation with the order number."""
    order = _order(request, request.query.get("order", ""))
    return _page(request, "Thank you for your purchase!", "bought", order)


def orders(request: ShopRequest) -> Response:
    """Lists the account's orders, newest first."""
    own = sorted(
        (o for o in request.store.orders if o.email == request.user),
        key=lambda o: o.date,
        reverse=True,
    )
    return _page(request, "My Orders", "orders", own)


def order(request: ShopRequest) -> Response:
    """Shows one order."""
    order = _order(request, request.parts["number"])
    return _page(request, f"Order # {order.label}", "order", order, request.store.products)


def _page(
    request: ShopRequest, title: str, part: str, *values: object, message: str = ""
) -> Response:
    return shop_page(request, title, draw("account.html", part, *values), message=message)


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


def _total(items: list[tuple[Product, int]]) -> int:
    return sum(product.price * quantity for product, quantity in items)


ROUTES = (
    *SIGN_IN.routes,
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
