"""The shop's customer pages: cart, checkout, orders, address, wish list."""

from __future__ import annotations

from prill.emulators.shop.pages import (
    PageError,
    Response,
    Route,
    ShopRequest,
    SignIn,
    draw,
    find,
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


def _account(request: ShopRequest) -> Response:
    return _page(request, "My Account", "account", request.customer)


def _address(request: ShopRequest) -> Response:
    message = "You saved the address." if "said" in request.query else ""
    return _page(request, "Address Book", "address", request.customer, message=message)


def _edit_address(request: ShopRequest) -> Response:
    return _page(request, "Edit Address", "edit_address", request.customer.address, _ADDRESS)


def _save_address(request: ShopRequest) -> Response:
    """Saves a new address; only its second line may be empty."""
    values = {name: request.form.get(name, "").strip() for name in _ADDRESS}
    if missing := [
        _ADDRESS[name] for name, value in values.items() if not value and name != "street2"
    ]:
        raise PageError(400, f"{missing[0]} is a required field.")
    request.customer.address = Address(**values)
    return redirect("/customer/address/?said=1")


def _wishes(request: ShopRequest) -> Response:
    items = [request.store.products[sku] for sku in request.customer.wishes]
    return _page(request, "My Wish List", "wishes", items)


def _add_wish(request: ShopRequest) -> Response:
    product = _product(request)
    if product.sku not in request.customer.wishes:
        request.customer.wishes.append(product.sku)
    return redirect("/wishlist/")


def _drop_wish(request: ShopRequest) -> Response:
    if (sku := _product(request).sku) in request.customer.wishes:
        request.customer.wishes.remove(sku)
    return redirect("/wishlist/")


def _show_cart(request: ShopRequest) -> Response:
    items = _cart(request)
    return _page(request, "Shopping Cart", "cart", items, _total(items))


def _add_to_cart(request: ShopRequest) -> Response:
    """Adds a product to the cart, limited to the stock."""
    product = _product(request)
    quantity = request.customer.cart.get(product.sku, 0) + whole_number(
        request.form.get("qty", "1"), "The quantity", 1
    )
    if quantity > product.stock:
        raise PageError(400, f"The requested quantity of {product.name} is not available.")
    request.customer.cart[product.sku] = quantity
    return redirect("/checkout/cart/")


def _drop_from_cart(request: ShopRequest) -> Response:
    request.customer.cart.pop(_product(request).sku, None)
    return redirect("/checkout/cart/")


def _checkout(request: ShopRequest) -> Response:
    items = _cart(request)
    if not items:
        return redirect("/checkout/cart/")
    return _page(request, "Checkout", "checkout", request.customer, items, _total(items))


def _place_order(request: ShopRequest) -> Response:
    items = _cart(request)
    if not items:
        raise PageError(400, "Your shopping cart is empty.")
    for product, quantity in items:
        if quantity > product.stock:
            raise PageError(400, f"The requested quantity of {product.name} is not available.")
    return redirect(
        f"/checkout/success/?order={request.store.place_order(request.customer).number}"
    )


def _bought(request: ShopRequest) -> Response:
    order = _order(request, request.query.get("order", ""))
    return _page(request, "Thank you for your purchase!", "bought", order)


def _orders(request: ShopRequest) -> Response:
    own = sorted(
        (o for o in request.store.orders if o.email == request.user),
        key=lambda o: o.date,
        reverse=True,
    )
    return _page(request, "My Orders", "orders", own)


def _show_order(request: ShopRequest) -> Response:
    order = _order(request, request.parts["number"])
    return _page(request, f"Order # {order.label}", "order", order, request.store.products)


def _page(
    request: ShopRequest, title: str, part: str, *values: object, message: str = ""
) -> Response:
    return shop_page(request, title, draw("account.html", part, *values), message=message)


def _product(request: ShopRequest) -> Product:
    products = request.store.products.values()
    return find(products, lambda product: product.sku == request.parts["sku"], "product")


def _order(request: ShopRequest, number: str) -> ShopOrder:
    return find(
        request.store.orders,
        lambda order: str(order.number) == number and order.email == request.user,
        "order",
    )


def _cart(request: ShopRequest) -> list[tuple[Product, int]]:
    return [
        (request.store.products[sku], quantity) for sku, quantity in request.customer.cart.items()
    ]


def _total(items: list[tuple[Product, int]]) -> int:
    return sum(product.price * quantity for product, quantity in items)


ROUTES = (
    *SIGN_IN.routes,
    Route("GET", "/customer/account", _account, private=True),
    Route("GET", "/customer/address", _address, private=True),
    Route("GET", "/customer/address/edit", _edit_address, private=True),
    Route("POST", "/customer/address/edit", _save_address, private=True),
    Route("GET", "/wishlist", _wishes, private=True),
    Route("POST", "/wishlist/add/{sku}", _add_wish, private=True),
    Route("POST", "/wishlist/remove/{sku}", _drop_wish, private=True),
    Route("GET", "/checkout/cart", _show_cart, private=True),
    Route("POST", "/checkout/cart/add/{sku}", _add_to_cart, private=True),
    Route("POST", "/checkout/cart/remove/{sku}", _drop_from_cart, private=True),
    Route("GET", "/checkout", _checkout, private=True),
    Route("POST", "/checkout", _place_order, private=True),
    Route("GET", "/checkout/success", _bought, private=True),
    Route("GET", "/sales/order/history", _orders, private=True),
    Route("GET", "/sales/order/view/order_id/{number}", _show_order, private=True),
)
