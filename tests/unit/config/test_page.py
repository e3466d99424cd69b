"""The reference page says what the table says."""

from tools import make_config_page

from barnabas.config.settings import BROKER, GROUP, TOPIC


def test_the_page_is_up_to_date() -> None:
    assert make_config_page.PAGE.read_text(encoding="utf-8") == make_config_page.render(), "run `make docs`"


def test_the_page_has_every_setting() -> None:
    page = make_config_page.render()
    for name in (*BROKER, *TOPIC, *GROUP):
        assert f"`{name}`" in page
