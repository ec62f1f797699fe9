"""MiniWoB++ pages as SteP shows them, from HTML as the environment writes it."""

from __future__ import annotations

from prill.papers.step.page import html_lines, show

PAGE = """<div id="wrap" data-wob_ref="1"><div id="query" data-wob_ref="2">Pick <b data-wob_ref="3">May 3</b></div>
<div id="area" data-wob_ref="4">
<label data-wob_ref="5"><input type="checkbox" id="ch0" value="on" data-wob_ref="6">pig &amp; cow</label>
<input type="radio" id="r1" value="on" checked data-wob_ref="7"><input type="text" id="tt" value data-wob_ref="8">
<input type="text" id="t2" value="tea" data-wob_ref="9"><table data-wob_ref="10"><tr data-wob_ref="11"><td data-wob_ref="12">
<button data-wob_ref="13">  O K </button></td></tr></table><span class="star" data-wob_ref="14"></span>
<select id="s" data-wob_ref="15"><option data-wob_ref="16">one</option><option selected data-wob_ref="17">two</option></select>
<textarea id="ta" data-wob_ref="18">ends in a blank </textarea></div></div>"""  # noqa: E501
LINES = """<div id=1 val=wrap />
<div id=4 val=area />
<label id=5 val= />
<input_checkbox id=6 val=ch0 />
<t id=-1 val=pig & cow />
<input_radio id=7 val=True />
<input_text id=8 val=tt />
<input_text id=9 val=tea />
<table id=10 val= />
<button id=13 val=O K />
<span id=14 val= />
<select id=15 val=two />
<option id=16 val=one />
<option id=17 val=two />
<textarea id=18 val=ends in a blank  />"""
CALENDAR = """<a data-wob_ref="1">7</a><div id="ui-datepicker-div" data-wob_ref="2"><span data-wob_ref="3">December</span>
<span data-wob_ref="4">2016</span><span data-wob_ref="5">21</span><a data-wob_ref="6">21</a><a data-wob_ref="7">32</a></div>"""  # noqa: E501


def test_elements_are_lines_in_order() -> None:
    assert "\n".join(map(str, html_lines(PAGE))) == LINES


def test_days_of_a_calendar_are_dates() -> None:
    shown = [line.value for line in html_lines(CALENDAR)]
    assert shown == [
        "12/07/2016",
        "ui-datepicker-div",
        "December",
        "2016",
        "21",
        "12/21/2016",
        "32",
    ]
    assert html_lines(CALENDAR.replace("ui-datepicker-div", "x"))[0].value == "7"


def test_actions_name_elements_in_words() -> None:
    shown = show(PAGE, 150)
    assert shown.page.target("[13]") == "[13] button 'O K'"
    assert shown.page.target("[-1]") == "[-1]"
