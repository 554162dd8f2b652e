"""The overview: the picture of the pipeline, the stream, charts and snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.browser import documents

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.browser.conftest import Watched
    from tests.browser.page_server import PageSite


def test_picture_shows_every_node_with_its_state_and_every_edge_with_rate_lag_and_state(
    page: Page, site: PageSite
) -> None:
    page.goto("/")
    flow = page.get_by_role("list", name="Flow of changes")

    expect(flow.locator(".box")).to_have_count(7)
    expect(flow.locator(".box").first).to_contain_text("PostgreSQL")
    expect(flow.locator(".flow-lines .line")).to_have_count(6)
    assert flow.locator(".box-state").all_inner_texts() == [
        "RUNNING",
        "ACTIVE",
        "RUNNING",
        "RUNNING",
        "CATCHING_UP",
        "RUNNING",
        "CURRENT",
    ]
    edges = [text.split("\n") for text in flow.locator(".edge").all_inner_texts()]
    assert ["PostgreSQL to Slot cdc_shop:", "1.1 MiB/s", "lag 1.2 KiB", "flowing"] in edges
    assert ["Kafka to cache:", "2,500 records/s", "lag 31 s", "48,210 records", "catching up"] in edges
    assert len(edges) == 6


def test_lines_of_the_picture_join_the_boxes_of_their_edges(page: Page, site: PageSite) -> None:
    page.goto("/")
    expect(page.locator(".flow-lines .line")).to_have_count(6)

    for line, source, target in ((0, "PostgreSQL", "Slot cdc_shop"), (3, "Kafka", "cache"), (5, "lake", "12 views")):
        path = page.locator(".flow-lines .line").nth(line).locator(".base").bounding_box()
        start = page.locator(".box", has=page.get_by_role("link", name=source, exact=True)).bounding_box()
        end = page.locator(".box", has=page.get_by_role("link", name=target, exact=True)).bounding_box()
        assert path is not None
        assert start is not None
        assert end is not None
        assert abs(path["x"] - (start["x"] + start["width"])) < 3
        assert abs(path["x"] + path["width"] - end["x"]) < 9
        assert end["y"] < path["y"] + path["height"] < end["y"] + end["height"]


def test_labels_of_the_picture_do_not_run_into_the_boxes(page: Page, site: PageSite) -> None:
    page.goto("/")
    expect(page.locator(".edge")).to_have_count(6)

    overlaps = page.evaluate(
        """() => {
          const boxes = [...document.querySelectorAll(".box")].map((one) => one.getBoundingClientRect());
          return [...document.querySelectorAll(".edge span:not(.hidden-text)")].filter((label) => {
            const range = document.createRange();
            range.selectNodeContents(label);
            const found = range.getBoundingClientRect();
            return boxes.some((box) => found.right > box.left + 1 && found.left < box.right - 1 &&
              found.bottom > box.top + 1 && found.top < box.bottom - 1);
          }).map((label) => label.textContent);
        }"""
    )

    assert overlaps == []


def test_broken_part_is_named_in_its_box_with_hint_and_in_the_attention_list(page: Page, site: PageSite) -> None:
    page.goto("/")
    expect(page.locator("#state")).to_have_text("RUNNING")

    site.answers["/api/picture"] = documents.broken_picture()

    box = page.locator(".box", has=page.get_by_role("link", name="Kafka", exact=True))
    expect(box).to_contain_text("Kafka at kafka.example.com:9092 does not answer for 12 s.")
    expect(box).to_contain_text("check that the brokers run")
    expect(page.locator("#state")).to_have_text("WAITING")
    expect(page.locator("#announce")).to_have_text("shop: WAITING")
    attention = page.locator(".attention")
    expect(attention.get_by_role("heading")).to_have_text("Needs attention (2)")
    expect(attention).to_contain_text("Kafka does not answer since 12 s; capture waits.")
    expect(page.locator('#nav a[data-path="dead-letters"]')).to_contain_text("3")
    expect(page.locator(".edge-state", has_text="stopped")).to_have_count(4)


def test_update_leaves_the_focus_where_it_is(page: Page, site: PageSite) -> None:
    page.goto("/")
    title = page.get_by_role("link", name="Kafka", exact=True)
    title.focus()

    changed = documents.picture()
    changed["nodes"][2]["facts"] = [["last commit", "7.7 s ago"]]
    site.answers["/api/picture"] = changed

    expect(page.get_by_text("7.7 s ago")).to_be_visible()
    expect(title).to_be_focused()


def test_ticks_of_the_stream_are_not_read_aloud(page: Page, site: PageSite) -> None:
    page.goto("/")
    expect(page.locator("#state")).to_have_text("RUNNING")
    before = page.locator("#clock").inner_text()

    expect(page.locator("#clock")).not_to_have_text(before)

    expect(page.locator("#announce")).to_have_text("")
    assert page.locator("[aria-live], [role=status], [role=alert]").count() == 1


def test_sinks_that_are_added_appear_in_the_picture(page: Page, site: PageSite) -> None:
    page.goto("/")
    expect(page.locator(".box")).to_have_count(7)

    changed = documents.picture()
    changed["nodes"] = changed["nodes"][:4]
    changed["edges"] = changed["edges"][:3]
    site.answers["/api/picture"] = changed
    expect(page.locator(".box")).to_have_count(4)
    expect(page.locator(".flow-lines .line")).to_have_count(3)

    site.answers["/api/picture"] = documents.picture()
    expect(page.locator(".box")).to_have_count(7)


def test_silent_stream_is_named_with_the_time_of_the_shown_data_until_it_is_back(page: Page, site: PageSite) -> None:
    page.goto("/")
    expect(page.locator("#state")).to_have_text("RUNNING")

    site.stream = "silent"
    notice = page.locator("#notice")
    expect(notice).to_be_visible()

    expect(notice).to_contain_text("Connection lost: no data from the server for")
    expect(notice).to_contain_text(page.locator("#clock").inner_text())
    expect(page.locator("#announce")).to_contain_text("Connection lost")
    site.stream = "open"
    expect(notice).to_be_hidden()
    expect(page.locator("#announce")).to_have_text("The connection is back")


def test_page_without_any_answer_says_so(page: Page, site: PageSite) -> None:
    site.stream = "silent"

    page.goto("/")

    expect(page.get_by_text("Reading the state of the pipeline ...")).to_be_visible()
    expect(page.locator("#notice")).to_contain_text("No data from the server for")


def test_refused_stream_is_replaced_by_polling(page: Page, site: PageSite, watched: Watched) -> None:
    watched.expected.append("503")
    site.stream = 503

    page.goto("/")

    expect(page.locator("#state")).to_have_text("RUNNING")
    assert any(one.path == "/api/picture" for one in site.asked)


def test_sink_has_the_same_line_in_every_chart(page: Page, site: PageSite) -> None:
    history = documents.history()
    del history["series"]["sink:cache:lag_seconds"]
    history["series"]["sink:lake:lag_seconds"] = [0.5, 0.7]
    site.answers["/api/history"] = history
    page.goto("/")
    expect(page.locator(".legend:visible")).to_have_count(3)

    lines: dict[str, set[str | None]] = {}
    for entry in page.locator(".legend:visible li").all():
        shown = entry.locator("path").get_attribute("class")
        lines.setdefault(entry.inner_text(), set()).add(shown)

    assert {sink: len(shown) for sink, shown in lines.items()} == {"cache": 1, "lake": 1, "search": 1}
    assert len(set.union(*lines.values())) == 3


def test_charts_show_an_hour_with_its_gaps_and_can_be_read_with_the_keyboard(page: Page, site: PageSite) -> None:
    page.goto("/")
    chart = page.get_by_role("img", name="Rows captured, last 1 h")
    expect(chart).to_be_visible()

    line = page.locator(".chart", has=chart).locator("path.line")
    assert (line.get_attribute("d") or "").count("M") == 2
    chart.focus()
    chart.press("ArrowLeft")
    figure = page.locator(".chart", has=chart)
    expect(figure.locator(".chart-now")).to_contain_text("rows/s at ")
    chart.blur()
    expect(figure.locator(".chart-now")).not_to_contain_text(" at ")
    summary = page.get_by_role("img", name="Lag of sinks").get_attribute("aria-label") or ""
    assert "search: now" in summary
    assert "cache: now" in summary


def test_snapshot_in_progress_has_a_bar_and_the_time_left(page: Page, site: PageSite) -> None:
    page.goto("/")

    row = page.get_by_role("row", name="public.orders")
    expect(row).to_contain_text("42%")
    expect(row).to_contain_text("ready in 3 min")
    expect(row.get_by_role("progressbar", name="Snapshot of public.orders")).to_be_visible()
    expect(row).not_to_contain_text("waits for")
    slowed = page.get_by_role("row", name="public.clicks")
    expect(slowed).to_contain_text("waits for the load guard, at 25 % of full speed: a commit takes 812 ms")
    expect(page.get_by_text("1 of 3 tables is not complete.")).to_be_visible()


def test_hidden_tab_holds_no_stream_and_shows_old_data_as_old(page: Page, site: PageSite) -> None:
    page.goto("/")
    expect(page.locator("#state")).to_have_text("RUNNING")
    hide = "Object.defineProperty(document, 'hidden', {value: %s, configurable: true})"
    change = "document.dispatchEvent(new Event('visibilitychange'))"

    page.evaluate(f"{hide % 'true'}; {change}")
    before = page.locator("#clock").inner_text()
    page.wait_for_timeout(5600)
    site.stream = "silent"
    page.evaluate(f"{hide % 'false'}; {change}")

    expect(page.locator("#notice")).to_contain_text(before, timeout=4000)
