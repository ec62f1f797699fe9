"""Results as JUnit reports, for continuous integration."""

from __future__ import annotations

from xml.etree.ElementTree import Element, SubElement, indent, tostring

from prill.evaluators.agreement.differences import CompareResult, decision_line, describe_run
from prill.text import printable


def compare_junit(result: CompareResult) -> str:
    """Returns a JUnit report: the requirement as a test that can fail, and each task as a test
    case.

    Tasks also change by chance, so a single task never fails.
    """
    root = Element("testsuites", name="prill compare")

    def suite(name: str, count: int, failures: int, errors: int, skipped: int) -> Element:
        counts = {"tests": count, "failures": failures, "errors": errors, "skipped": skipped}
        return SubElement(
            root, "testsuite", {"name": name, **{key: str(n) for key, n in counts.items()}}
        )

    def case(parent: Element, kind: str, name: str) -> Element:
        return SubElement(
            parent, "testcase", classname=f"prill.{kind}", name=printable(name), time="0"
        )

    if result.decision is not None:
        failed, open_ = (int(result.decision == word) for word in ("fail", "inconclusive"))
        test = case(
            suite("requirement", 1, failed, open_, 0), "requirement", result.config.require or ""
        )
        if result.decision != "pass":
            kind = "failure" if failed else "error"
            SubElement(test, kind, type=result.decision, message=printable(decision_line(result)))
    unscored = result.changed("unscored")
    tasks = suite("tasks", len(result.tasks), 0, 0, len(unscored))
    for task in result.tasks:
        test = case(tasks, "task", task.task)
        lines = [
            f"{s} {describe_run(run)}" for s, runs in (("A", task.a), ("B", task.b)) for run in runs
        ]
        if task.change == "unscored":
            SubElement(test, "skipped", message=printable("; ".join(lines)))
        elif task.change != "none":
            SubElement(test, "system-out").text = printable(
                "\n".join([f"{task.change}:", *lines]), several_lines=True
            )
    indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(root, encoding="unicode")}\n'
