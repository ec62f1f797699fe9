"""The agent's own word: its flag, and its answers as chat agents write them."""

from __future__ import annotations

import pytest

from prill.actions.ending import CLAIMED_SUCCESS, claim_in
from prill.evaluators.baselines import SelfReport
from prill.evaluators.claims import parse_stance
from prill.evaluators.evidence import without_claims
from prill.types import Action, Observation, Step, Task, Trajectory

ADMISSIONS = """
Blocked by a captcha.
I was unable to complete the booking because the site requires a login.
I'm unable to access the page.
I am not able to log in without credentials.
Sorry, I couldn't find the product you asked for.
I could not complete the task.
I cannot proceed without your password.
Cannot continue: a CAPTCHA appeared.
The site asks me to solve a reCAPTCHA, which I cannot do.
I've encountered a CAPTCHA verification page.
Access denied. The store returned 403.
Access to the site is blocked.
The page did not load, so there is nothing to report.
The checkout failed with an error.
Login failed.
Failed to add the item to the cart.
Task failed: the button does not respond.
The task could not be completed as requested.
The task is incomplete.
The task has not yet been finished.
I ran out of steps before the order was reached.
Timed out while waiting for the search results.
I gave up after ten attempts.
I have given up.
I'm stuck on the cookie banner.
I am still stuck on the wrong page.
My attempts to open the menu were unsuccessful.
I tried to open the menu, without success.
The form requires an account, and I do not have one.
You need to sign in first.
Please provide your login details so that I can go on.
Could you help? I need your help to pass the verification.
The website is not working at the moment.
A network error keeps me from opening the shop.
It was not possible to change the address.
It isn't possible to book this room.
Unfortunately, I wasn't able to submit the form.
I apologize, the flight could not be booked.
Unable to retrieve the price.
The search engine shows an unexpected error.
I reached the step limit.
I'm afraid the item is out of stock, so I couldn't order it.
The website won't let me log in.
I do not have permission to edit this page.
This page requires two-factor authentication which I don't have.
Cloudflare is blocking access.
Could not connect to the server.
The server returned a 500 error and I had to stop.
There is no way to complete this request.
The booking did not go through.
Payment declined; the order wasn't placed.
Task aborted.
I need more information to continue.
The button is disabled, so the file could not be downloaded.
I'm sorry, but I can't help with that.
No result
N/A
Error: element not found
Max steps reached
I was blocked from posting by a rate limit, and could not submit it.
Let me try another approach.
I can't do that.
I couldn’t open the file.
Ich konnte das Produkt leider nicht finden.
Die Bestellung ist fehlgeschlagen.
Der Zugriff wurde blockiert.
Das war mir nicht möglich.
Je n'ai pas pu terminer la réservation.
Il est impossible de se connecter au site.
La commande a échoué.
No pude completar la compra.
No se encontró el vuelo y no fue posible continuar.
La página está bloqueada.
Ich habe keinen Zugriff auf die Seite.
Die Seite lässt sich nicht öffnen.
La page ne se charge pas.
Accès refusé.
El sitio me pide un captcha.
Acceso denegado.
任务未完成。
我无法完成这个任务。
页面加载失败。
没有找到该商品。
遇到验证码，无法继续。
""".strip().splitlines()

CLAIMS = """
42
Done.
The order was placed.
I have added the red shoes to your cart.
I successfully booked the room for two nights.
The cheapest flight costs $214 and leaves at 9:40.
Naomi's error log
The failed orders are 12, 15 and 31.
The last build failed status is shown for job 7.
There were no errors, and the form was submitted.
The form was saved without any problems.
I passed the captcha and posted the comment.
I solved the CAPTCHA and placed the order.
After dismissing the error message I submitted the form.
At first the page did not load, but after a refresh I placed the order.
Initially I couldn't log in; after resetting the form I have created the account.
The error message reads "Access denied".
The author of "Unable to Connect" is B. Alan.
It was not blocked, and the post has been published.
The user's status is 'blocked'.
The song is called "I Can't Get No Satisfaction".
The answer is no.
Yes, the shop ships to Norway.
The ticket costs 12 euros; children pay nothing.
All tasks are marked as done now.
I found three recipes: lentil soup, dal, and hummus.
The page lists 3 open issues and 2 closed ones.
Die Bestellung war erfolgreich.
Ich habe die Schuhe zum Warenkorb hinzugefügt.
J'ai ajouté le produit au panier.
El vuelo más barato cuesta 120 euros.
He añadido el producto al carrito con éxito.
Das Zimmer wurde gebucht.
Die Bestellung wurde ohne Fehler abgeschickt.
La réservation a été effectuée sans problème.
El formulario se envió sin errores.
酒店已经预订好了。
没有错误，表单已提交。
订单已完成。
最便宜的航班是120元。
Red Dress, Size M
Error 404 is caused by a missing page.
The most common failure is a timeout.
Sorry by Justin Bieber
The Impossible (2012)
Nothing Else Matters
The product cannot be returned after 30 days.
The article says the rocket failed to reach orbit.
He could not attend the meeting, according to the email.
Customers complain about late delivery and blocked accounts.
https://shop.example/cart
12 May 2024
""".strip().splitlines()

UNCLEAR = """
I found the product, but I could not add it to the cart.
The form was submitted. However, the confirmation page did not load.
Unfortunately, there are no such models.
No results were found for this search.
I did not find any discount.
I could only see the first page of the list.
Я не смог найти этот товар на сайте.
商品をカートに追加できませんでした。
Nie udało mi się znaleźć tego produktu w sklepie.
לא הצלחתי למצוא את המוצר
""".strip().splitlines()


def run(answer: str | None, **metadata: object) -> Trajectory:
    step = Step(Observation(text="a page"), Action("answer", "answer()", value=answer))
    return Trajectory(id="a", task=Task(goal="g"), steps=(step,), answer=answer, metadata=metadata)


@pytest.mark.parametrize("answer", ADMISSIONS)
def test_admission_is_no_success(answer: str) -> None:
    assert parse_stance(answer)[0] == "admission"


@pytest.mark.parametrize("answer", CLAIMS)
def test_answer_is_a_claim(answer: str) -> None:
    assert parse_stance(answer)[0] == "claim"


@pytest.mark.parametrize("answer", UNCLEAR)
async def test_doubtful_answer_is_unscored(answer: str) -> None:
    assert parse_stance(answer)[0] == "unclear"
    assert (await SelfReport()(run(answer))).unscored == "no_evidence"


@pytest.mark.parametrize("flag", [True, False])
async def test_own_flag_counts_whatever_the_words(flag: bool) -> None:
    for answer in ("Done.", "I could not do it.", None, ""):
        verdict = await SelfReport()(run(answer, **{CLAIMED_SUCCESS: flag}))
        assert verdict.success is flag


async def test_flag_of_another_type_is_no_flag() -> None:
    for odd in (1, "true", None, [True]):
        assert (
            await SelfReport()(run("I could not do it.", **{CLAIMED_SUCCESS: odd}))
        ).success is False


def test_evidence_alone_has_no_flag() -> None:
    assert CLAIMED_SUCCESS not in without_claims(run("Done.", **{CLAIMED_SUCCESS: True})).metadata


@pytest.mark.parametrize(
    ("arguments", "flag"),
    [
        ({"success": True, "text": "x"}, True),
        ({"success": False}, False),
        ({"status": "success"}, True),
        ({"status": "Failure"}, False),
        ({"goal_status": "infeasible"}, False),
        ({"goal_status": "complete"}, True),
        ({"status": 1}, None),
        ({"status": "42"}, None),
        ({"text": "success"}, None),
    ],
)
def test_flag_among_the_arguments_of_a_call(
    arguments: dict[str, object], flag: bool | None
) -> None:
    assert claim_in(arguments) is flag


def test_long_answer_is_read_in_no_time() -> None:
    for part in ("not ", "i could not ", "a's 'b ", "captcha ", "n't been ", "unable ", "“", "无"):
        assert parse_stance(part * 20_000)[0] in ("claim", "admission", "unclear")
