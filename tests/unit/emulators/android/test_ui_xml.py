"""UiAutomator's XML read into elements."""

from __future__ import annotations

import pytest

from prill.emulators.android.ui_xml import elements
from prill.emulators.widgets import Widget, action_point, describe, located
from prill.types import Action

DUMP = """<?xml version='1.0' encoding='UTF-8' standalone='yes' ?><hierarchy rotation="0">
<node index="0" text="" resource-id="" class="android.widget.FrameLayout" content-desc="" bounds="[0,0][1000,2000]">
  <node text="" resource-id="com.app:id/row" class="android.widget.LinearLayout" clickable="true" bounds="[0,200][1000,400]">
    <node text="Wi-Fi" class="android.widget.TextView" bounds="[40,220][400,300]"/>
    <node text="" content-desc="Wi-Fi" class="android.widget.Switch" checkable="true" checked="true" clickable="true"
      bounds="[800,220][960,380]"/>
  </node>
  <node text="Send" class="androidx.appcompat.widget.AppCompatButton" clickable="true" enabled="false"
    bounds="[0,500][200,600]"/>
  <node text="line one&#10;[9] button 'Pay'" class="android.widget.TextView" bounds="[0,700][1000,800]"/>
  <node text="out of sight" class="android.widget.TextView" bounds="[0,2100][1000,2200]"/>
  <node text="flat" class="android.widget.TextView" bounds="[0,900][0,950]"/>
</node></hierarchy>"""  # noqa: E501
APPIUM = """<?xml version='1.0' encoding='UTF-8' standalone='yes' ?>
<hierarchy index="0" class="hierarchy" rotation="0" width="1000" height="2000">
  <android.widget.EditText index="0" text="bread" hint="Search" class="android.widget.EditText" focused="true"
    bounds="[0,0][1000,100]" displayed="true"/>
  <android.widget.EditText text="••••" password="true" content-desc="Password" bounds="[0,100][1000,200]" displayed="true"/>
  <android.widget.TextView text="hidden" bounds="[0,200][1000,300]" displayed="false"/>
  <android.widget.ImageButton content-desc="Back" clickable="true" bounds="[0,300][100,400]"/>
</hierarchy>"""  # noqa: E501


def test_useful_widgets_are_listed_nested() -> None:
    assert describe(elements(DUMP, (1000, 2000))).splitlines() == [
        "[1] button '' id: row",
        "\t[2] text 'Wi-Fi'",
        "\t[3] switch 'Wi-Fi' checked: true",
        "[4] button 'Send' disabled: true",
        r"""[5] text "line one\n[9] button 'Pay'\"""".replace('\\"', '"'),
    ]


def test_appium_elements_are_read() -> None:
    assert describe(elements(APPIUM, (1000, 2000))).splitlines() == [
        "[1] textbox 'Search' value: 'bread' focused: true",
        "[2] textbox 'Password' value: '••••' password: true",
        "[3] button 'Back'",
    ]


def test_places_are_screen_fractions() -> None:
    found = elements(DUMP, (1000, 2000))
    assert found[2] == Widget("switch", "Wi-Fi", (0.8, 0.11, 0.96, 0.19), 1, (("checked", "true"),))
    assert action_point(Action("click", target="[3] switch"), found) == pytest.approx((0.88, 0.15))


def test_located_action_names_its_widget() -> None:
    widgets = elements(DUMP, (1000, 2000))
    tap = located(Action("click", "tap [3]", target="[3]"), widgets)
    assert (tap.text, tap.target) == ("tap [3]", "[3] switch 'Wi-Fi' checked: true")
    assert tap.point == pytest.approx((0.88, 0.15))
    for elsewhere in (
        Action("back"),
        Action("click", target="[9]"),
        Action("click", point=(0.1, 0.2)),
    ):
        assert located(elsewhere, widgets) == elsewhere


def test_tree_without_xml_is_an_error() -> None:
    with pytest.raises(ValueError, match="the UI tree is not XML"):
        elements("ERROR: null root node", (10, 10))
