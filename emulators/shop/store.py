"""The shop's data, in memory; a reset restores the initial state."""

from __future__ import annotations

import secrets
import tomllib
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from importlib import resources
from typing import Any, Literal

Site = Literal["shopping", "shopping_admin", "reddit", "gitlab"]
SHIPPING = 500
# No clock is read: events after the start are one minute apart, beginning at this time.
_START = datetime(2023, 4, 1, 9, 0)


@dataclass(slots=True)
class Review:
    """A customer review; `rating` is 1 to 5 stars."""

    author: str
    rating: int
    title: str
    text: str
    date: str


@dataclass(slots=True)
class Product:
    """A product; `price` is in cents, `category` a path of two names."""

    id: int
    sku: str
    name: str
    category: str
    price: int
    stock: int
    text: str
    reviews: list[Review]

    @property
    def slug(self) -> str:
        """Returns the product's name in its URL."""
        return self.name.lower().replace(" ", "-")

    @property
    def rating(self) -> float:
        """Returns the mean number of stars; 0 without reviews."""
        return (
            sum(review.rating for review in self.reviews) / len(self.reviews)
            if self.reviews
            else 0.0
        )


@dataclass(slots=True)
class Address:
    """A customer's address."""

    street: str
    street2: str
    city: str
    state: str
    zip: str
    country: str


@dataclass(slots=True)
class Customer:
    """An account of the shop; `cart` has quantities by SKU, `wishes` has SKUs."""

    email: str
    name: str
    password: str
    address: Address
    cart: dict[str, int] = field(default_factory=dict)
    wishes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class ShopOrder:
    """An order: SKUs, quantities, and the prices in cents at the time of the order."""

    number: int
    email: str
    date: str
    status: str
    lines: list[tuple[str, int, int]]
    note: str = ""

    @property
    def label(self) -> str:
        """Returns the displayed order number."""
        return f"{self.number:09d}"

    @property
    def total(self) -> int:
        """Returns the total in cents, including shipping."""
        return sum(quantity * price for _, quantity, price in self.lines) + SHIPPING


@dataclass(slots=True)
class Comment:
    """A comment below a submission."""

    author: str
    text: str
    date: str


@dataclass(slots=True)
class Submission:
    """A post in a forum; `votes` has 1 or -1 by user, added to `score`."""

    id: int
    forum: str
    title: str
    author: str
    body: str
    date: str
    score: int
    comments: list[Comment]
    votes: dict[str, int] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """Returns the URL path."""
        words = "".join(
            letter if letter.isalnum() else " " for letter in self.title.lower()
        ).split()
        return f"/f/{self.forum}/{self.id}/{'-'.join(words)}"


@dataclass(slots=True)
class Member:
    """A user's role in a project."""

    account: str
    name: str
    role: str


@dataclass(slots=True)
class Project:
    """A project without its code."""

    path: str
    text: str
    members: list[Member]
    issues: list[str]


class Store:
    """The state of all sites. `reset` restores the initial state and signs all users out."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Restores the initial state."""
        data: dict[str, list[dict[str, Any]]] = tomllib.loads(read_data("content.toml"))
        self.products = {
            row["sku"]: Product(**row | {"reviews": [Review(**r) for r in row["reviews"]]})
            for row in data["product"]
        }
        self.customers = {
            row["email"]: Customer(**row | {"address": Address(**row["address"])})
            for row in data["customer"]
        }
        self.orders = [self._order(row) for row in data["order"]]
        self.forums: dict[str, str] = {row["name"]: row["title"] for row in data["forum"]}
        self.submissions = [
            Submission(**row | {"comments": [Comment(**message) for message in row["comments"]]})
            for row in data["submission"]
        ]
        self.projects = {
            row["path"]: Project(**row | {"members": [Member(*each) for each in row["members"]]})
            for row in data["project"]
        }
        self.full_names: dict[str, str] = {
            row["name"]: row["full_name"] for row in data["project_user"]
        }
        self.messages: list[tuple[str, str]] = []
        self._passwords: dict[Site, dict[str, str]] = {
            "shopping": {row["email"]: row["password"] for row in data["customer"]},
            "shopping_admin": {row["name"]: row["password"] for row in data["administrator"]},
            "reddit": {row["name"]: row["password"] for row in data["forum_user"]},
            "gitlab": {row["name"]: row["password"] for row in data["project_user"]},
        }
        self._sessions: dict[str, tuple[Site, str]] = {}
        self._events = 0
        self.logins = 0

    def _order(self, row: dict[str, Any]) -> ShopOrder:
        lines = [(sku, quantity, self.products[sku].price) for sku, quantity in row["lines"]]
        return ShopOrder(**row | {"lines": lines})

    def now(self) -> str:
        """Returns the time of the next event, as sortable text."""
        self._events += 1
        return str(_START + timedelta(minutes=self._events))

    def sign_in(self, site: Site, name: str, password: str) -> str | None:
        """Creates a session and returns its token; None if name or password is wrong."""
        if not password or self._passwords[site].get(name) != password:
            return None
        # Random, so that a cookie from before a reset is never valid for another user afterwards.
        token = secrets.token_hex(16)
        self._sessions[token] = (site, name)
        self.logins += 1
        return token

    def sign_out(self, token: str) -> None:
        """Ends a session if it exists."""
        self._sessions.pop(token, None)

    def user(self, site: Site, token: str) -> str | None:
        """Returns the user signed in with this token on this site."""
        session = self._sessions.get(token)
        return session[1] if session is not None and session[0] == site else None

    def place_order(self, customer: Customer) -> ShopOrder:
        """Orders the cart's content: reduces the stock and empties the cart."""
        lines = [
            (sku, quantity, self.products[sku].price) for sku, quantity in customer.cart.items()
        ]
        order = ShopOrder(
            max(o.number for o in self.orders) + 1, customer.email, self.now(), "Pending", lines
        )
        for sku, quantity in customer.cart.items():
            self.products[sku].stock -= quantity
        self.orders.append(order)
        customer.cart = {}
        return order

    def submit(self, forum: str, author: str, title: str, body: str) -> Submission:
        """Adds a post."""
        number = max(post.id for post in self.submissions) + 1
        post = Submission(number, forum, title, author, body, self.now(), 1, [])
        self.submissions.append(post)
        return post


def read_data(name: str) -> str:
    """Reads a text file of this package."""
    return resources.files("prill.emulators.shop").joinpath(name).read_text(encoding="utf-8")


def money(cents: int) -> str:
    """Formats an amount as shown on pages: $1,234.50."""
    return f"${cents / 100:,.2f}"
