"""Claims of an answer, looked up in what was recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

import prill
from prill.errors import UsageError
from prill.evaluators.claim_check import check_claims, unseen_claims
from prill.io.store import encode, read_verdicts
from prill.types import Action, CheckedClaim, Observation, Step, Task, Trajectory


def run(
    answer: str, *pages: str, goal: str = "Find it", actions: tuple[Action, ...] = ()
) -> Trajectory:
    """A run that saw these pages; between them it clicked, or did these actions."""
    acts = actions or (Action("click", "click [7]"),) * (len(pages) - 1)
    return Trajectory(
        id="1",
        task=Task(goal=goal),
        steps=tuple(
            Step(Observation(text=page), action) for page, action in zip(pages, acts, strict=False)
        ),
        final=Observation(text=pages[-1]) if pages else None,
        answer=answer,
    )


def statuses(trajectory: Trajectory) -> dict[str, str]:
    return {claim.text: claim.status for claim in check_claims(trajectory)}


@pytest.mark.parametrize(
    ("answer", "page"),
    [
        ("The total is $1,234.50.", "StaticText 'Total: USD 1234.50'"),
        ("It costs €1.234,50 here.", "Price 1,234.50 EUR"),
        ("It drew 12,000 visitors.", "visitors: 12 000"),
        ("It drew 12,000 visitors.", "visitors: 12'000"),
        ("It was due on May 12, 2025.", "Due 2025-05-12"),
        ("It was due on 12.05.2025.", "Due: 12 May 2025"),
        ("It was due on 5/12/2025.", "Due 2025年5月12日"),
        ("Written by Zoë O’Neill.", "author ZOË O'NEILL"),  # composed or not
        ("I met Dell OptiPlex GX280 there.", "Dell Inc. OptiPlex GX280"),
        ("The page says “You saved\u00a0the product.”", "status: you saved the product"),
        ("See https://shop.example/item/7.", "link https://shop.example/item/7"),
        ("It lists 4 kittens.", "One adult cat and four kittens"),
        ("Ask for ticket #INC0655.", "Incidents with hashtag #INC0655"),
    ],
)
def test_a_claim_is_seen_however_the_page_writes_it(answer: str, page: str) -> None:
    (claim,) = check_claims(run(answer, "nothing", page))
    assert (claim.status, claim.step) == ("seen", 1)


@pytest.mark.parametrize(
    ("answer", "page"),
    [
        ("The total is $12.34.", "In the cart: $123.40"),
        ("It was due on May 12, 2025.", "May 2025, 12 items"),
        ("It lists 4 kittens.", "1. Cats\n4. Dogs"),
        ("Sold by Grace Nguyen.", "Grace Hopper, Nguyen Street"),
        ("The page says 'Order placed'.", "order not yet placed"),
        ("See https://shop.example/item/7.", "link https://shop.example/item/70"),
    ],
)
def test_what_no_page_shows_was_never_seen(answer: str, page: str) -> None:
    (claim,) = check_claims(run(answer, "nothing", page))
    assert (claim.status, claim.step) == ("never_seen", None)


def test_another_value_after_the_same_label_contradicts() -> None:
    (claim,) = check_claims(run("The order total is $45.00.", "Home", "Order total: $54.00"))
    assert (claim.status, claim.step, claim.reason) == ("contradicted", 1, "there: 54.00")
    several = run("The order total is $45.00.", "Order total: $54.00\nOrder total: $9.00")
    assert statuses(several) == {"$45.00": "never_seen"}


def test_absence_is_no_proof_where_a_state_has_no_text() -> None:
    looked = Trajectory(
        id="1",
        task=Task(goal="Find it"),
        steps=(Step(Observation(text="a page"), Action("click")),),
        final=Observation(screenshot="shot.png"),
        answer="It costs $12.34.",
    )
    (claim,) = check_claims(looked)
    assert (claim.status, "1 states" in claim.reason) == ("not_checkable", True)


def test_a_caption_confirms_and_denies_nothing() -> None:
    def told(caption: str, *, whole: bool = False) -> str:
        item = Trajectory(
            id="1",
            task=Task(goal="Buy it"),
            final=Observation(caption=caption),
            answer="It costs $12.34.",
        )
        return check_claims(item, captions_are_whole=whole)[0].status

    assert told("A shop with tea for $12.34.") == "seen"
    assert told("A shop. It does not show: \n- the price $12.34") == "not_checkable"
    assert told("A shop. No price of $12.34 is visible.", whole=True) == "never_seen"


def test_the_request_and_the_agents_own_words_are_no_evidence() -> None:
    asked = run("It costs $78.00.", "a page", goal="Find one under $78")
    assert statuses(asked) == {"$78.00": "not_checkable"}
    said = run(
        "It costs $12.34.",
        "a page",
        "a page",
        actions=(Action("answer", "It costs $12.34.", value="It costs $12.34."),),
    )
    assert statuses(said) == {"$12.34": "never_seen"}


def test_what_was_typed_is_told_apart_from_what_was_seen() -> None:
    typed = run(
        "The stock is 42 now.",
        "a form",
        "a form",
        actions=(Action("type", "type [9] [42]", value="42"),),
    )
    (claim,) = check_claims(typed)
    assert (claim.status, claim.step, "action" in claim.reason) == ("seen", 0, True)


def test_a_deed_needs_an_action_that_can_have_done_it() -> None:
    answer = "I have successfully posted the comment."
    assert statuses(run(answer, "a page", "a page")) == {"I have successfully posted": "seen"}
    idle = run(answer, "a page", "a page", actions=(Action("scroll", "scroll down"),))
    assert statuses(idle) == {"I have successfully posted": "never_seen"}
    denied = run("I have not posted the comment.", "a page", "a page")
    assert statuses(denied) == {}


@pytest.mark.parametrize(
    "answer", ["Would you like the one for $9.99?", "You could try Yahoo Finance.", "n/a", "7", ""]
)
def test_questions_and_proposals_claim_nothing_of_the_pages(answer: str) -> None:
    assert all(claim.text == "7" for claim in check_claims(run(answer, "a page")))


@pytest.mark.parametrize(
    "answer",
    [
        "A " * 9_000,
        "'" * 20_000,
        "1," * 10_000,
        "The A of the A of " * 1_000,
        "I have now also just " * 900,
        "\0" * 500 + "“" * 9_000,
        "a.b" * 6_000 + "@" + "c." * 3_000,
    ],
)
def test_hostile_answers_and_pages_end(answer: str) -> None:
    claims = check_claims(run(answer, answer * 20, "a 1 " * 60_000))
    assert len(claims) <= 100


def test_pages_cannot_pass_for_the_claim_by_length() -> None:
    # what lies beyond the bound was not read, so nothing is said of it
    (claim,) = check_claims(run("It costs $12.34.", "x" * 200_001 + " $12.34"))
    assert claim.status == "not_checkable"


async def test_the_option_adds_findings_and_changes_no_other_judge(tmp_path: Path) -> None:
    item = run("It costs $12.34.", "Price $12.34")
    plain, checked = prill.judge("self-report"), prill.judge("self-report", check_claims=True)
    verdict, found = await plain(item), await checked(item)
    assert verdict.findings is None
    assert "check_claims" not in plain.info.params
    assert found.findings is not None
    assert [claim.status for claim in found.findings.claims or ()] == ["seen"]
    assert (found.success, found.score) == (verdict.success, verdict.score)
    (tmp_path / "v.jsonl").write_bytes(encode(found) + b"\n")
    assert list(read_verdicts(tmp_path / "v.jsonl")) == [found]


async def test_the_reward_takes_off_what_the_record_speaks_against() -> None:
    item = run("It costs $12.34, sold by Grace Nguyen.", "Price $12.34")
    parts = (await prill.reward("self-report", claim_penalty=0.25).result(item)).parts
    assert (parts["judge"], parts["claim_penalty"]) == (1.0, -0.25)
    unread = Trajectory(id="2", task=item.task, answer=item.answer)
    assert (await prill.reward("self-report", claim_penalty=0.25).result(unread)).reward == 1.0
    with pytest.raises(UsageError, match="claim_penalty"):
        prill.reward("self-report", claim_penalty=-1)


def test_only_claims_that_the_record_speaks_against_are_unseen() -> None:
    claims = [
        CheckedClaim(kind="number", text=status, status=status)
        for status in ("seen", "never_seen", "contradicted", "not_checkable")
    ]
    assert [claim.text for claim in unseen_claims(claims)] == ["never_seen", "contradicted"]
