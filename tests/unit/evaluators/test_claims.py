"""The agent's own word: its flag, and its answers as chat agents write them."""

from __future__ import annotations

import pytest

from prill.actions.ending import CLAIMED_SUCCESS
from prill.evaluators.baselines import SelfReport
from prill.evaluators.claims import parse_stance
from prill.types import Action, Observation, Step, Task, Trajectory

ADMISSIONS = """
Blocked by a captcha.
I was unable to complete the booking because the site requires a login.
Sorry, I couldn't find the product you asked for.
I cannot proceed without your password.
Cannot continue: a CAPTCHA appeared.
The site asks me to solve a reCAPTCHA, which I cannot do.
Access denied. The store returned 403.
The page did not load, so there is nothing to report.
The checkout failed with an error.
Login failed.
The task could not be completed as requested.
The task has not yet been finished.
I ran out of steps before the order was reached.
I gave up after ten attempts.
I'm stuck on the cookie banner.
My attempts to open the menu were unsuccessful.
The form requires an account, and I do not have one.
You need to sign in first.
Please provide your login details so that I can go on.
Could you help? I need your help to pass the verification.
A network error keeps me from opening the shop.
It isn't possible to book this room.
I apologize, the flight could not be booked.
I reached the step limit.
I'm afraid the item is out of stock, so I couldn't order it.
This page requires two-factor authentication which I don't have.
Cloudflare is blocking access.
The server returned a 500 error and I had to stop.
The booking did not go through.
Payment declined; the order wasn't placed.
I need more information to continue.
I'm sorry, but I can't help with that.
No result
N/A
Error: element not found
Max steps reached
I was blocked from posting by a rate limit, and could not submit it.
Let me try another approach.
I couldn’t open the file.
Ich konnte das Produkt leider nicht finden.
Die Bestellung ist fehlgeschlagen.
Das war mir nicht möglich.
Je n'ai pas pu terminer la réservation.
La commande a échoué.
No pude completar la compra.
No se encontró el vuelo y no fue posible continuar.
Die Seite lässt sich nicht öffnen.
La page ne se charge pas.
El sitio me pide un captcha.
I stopped before the task was finished.
I stopped early, before the order was placed.
I quit halfway through the form.
The run was interrupted before completion.
Stopped without submitting the form.
I ended the session early without completing the task.
I was cut off before I could press Submit.
The order has yet to be placed.
The form still needs to be submitted.
I never reached the checkout.
I abandoned the task.
The task is half done.
There was not enough time to book the flight.
I left the form unsubmitted.
Ich habe aufgehört, bevor die Aufgabe fertig war.
Je me suis arrêté avant la fin de la tâche.
Me detuve antes de terminar la tarea.
任务还没做完。
任务未完成。
我无法完成这个任务。
页面加载失败。
遇到验证码，无法继续。
""".strip().splitlines()

CLAIMS = """
42
Done.
The order was placed.
I have added the red shoes to your cart.
The cheapest flight costs $214 and leaves at 9:40.
Naomi's error log
The last build failed status is shown for job 7.
There were no errors, and the form was submitted.
I passed the captcha and posted the comment.
After dismissing the error message I submitted the form.
At first the page did not load, but after a refresh I placed the order.
The error message reads "Access denied".
It was not blocked, and the post has been published.
The user's status is 'blocked'.
The song is called "I Can't Get No Satisfaction".
The answer is no.
The ticket costs 12 euros; children pay nothing.
I found three recipes: lentil soup, dal, and hummus.
Die Bestellung war erfolgreich.
J'ai ajouté le produit au panier.
He añadido el producto al carrito con éxito.
Die Bestellung wurde ohne Fehler abgeschickt.
La réservation a été effectuée sans problème.
El formulario se envió sin errores.
没有错误，表单已提交。
订单已完成。
最便宜的航班是120元。
Red Dress, Size M
Error 404 is caused by a missing page.
Sorry by Justin Bieber
Nothing Else Matters
The product cannot be returned after 30 days.
The article says the rocket failed to reach orbit.
Customers complain about late delivery and blocked accounts.
https://shop.example/cart
I stopped at the confirmation page, as asked.
I stopped the video before the advertisement.
The concert ended before 10 pm.
I removed the old item before I placed the order.
The order was placed before the deadline without any errors.
The book is about a man who never found his brother.
The package has yet to be shipped.
""".strip().splitlines()

UNCLEAR = """
I found the product, but I could not add it to the cart.
The form was submitted. However, the confirmation page did not load.
Unfortunately, there are no such models.
I did not find any discount.
I could only see the first page of the list.
Я не смог найти этот товар на сайте.
商品をカートに追加できませんでした。
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


def test_long_answer_is_read_in_no_time() -> None:
    for part in ("not ", "i could not ", "a's 'b ", "captcha ", "n't been ", "unable ", "“", "无"):
        assert parse_stance(part * 20_000)[0] in ("claim", "admission", "unclear")
