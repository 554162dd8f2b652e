from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cdc.local
from cdc.artifacts.lock_file import parse_lock, version_of
from cdc.errors import LocalError
from cdc.local.opensearch_config import descriptor

SHA = "a" * 64


def test_the_packaged_lock_pins_kafka_and_names_no_registry() -> None:
    text = (Path(cdc.local.__file__).parent / "kafka.lock").read_text()

    artifacts = parse_lock(text, name="kafka.lock")

    assert len(artifacts) == 46
    assert version_of(artifacts, "kafka_2.13") == "4.3.1"
    assert "://" not in text


def test_the_packaged_lock_pins_opensearch_with_its_modules_and_names_no_registry() -> None:
    text = (Path(cdc.local.__file__).parent / "opensearch.lock").read_text()

    artifacts = parse_lock(text, name="opensearch.lock")

    assert version_of(artifacts, "opensearch") == "3.8.0"
    folders = {artifact.folder for artifact in artifacts}
    assert "lib" in folders
    for folder in folders - {"lib"}:
        assert "classname=org.opensearch." in descriptor(folder.removeprefix("modules/"), "3.8.0")
    assert "://" not in text


def test_a_coordinate_becomes_a_path_of_the_repository_layout() -> None:
    text = (
        f"# made by a maintainer\n\n{SHA} 12 org.acme.io:tool_2:1.0-rc1 lib\n{SHA} 7 org.acme:nat:2:linux-x86_64 lib\n"
        f"{SHA} 9 org.acme:app:3:all@tar.gz app\n{SHA} 9 org.acme:app:3@zip app\n"
    )

    plain, classified, archive, other = parse_lock(text, name="x.lock")

    assert plain.path == "org/acme/io/tool_2/1.0-rc1/tool_2-1.0-rc1.jar"
    assert plain.size_bytes == 12
    assert classified.path == "org/acme/nat/2/nat-2-linux-x86_64.jar"
    assert classified.coordinate == "org.acme:nat:2:linux-x86_64"
    assert archive.path == "org/acme/app/3/app-3-all.tar.gz"
    assert other.path == "org/acme/app/3/app-3.zip"


@pytest.mark.parametrize(
    "line",
    [
        f"{SHA} 12 a:b:1",
        f"{SHA[1:]} 12 a:b:1 lib",
        f"{SHA} -1 a:b:1 lib",
        f"{SHA} 12 a:b lib",
        f"{SHA} 12 ../../etc:b:1 lib",
        f"{SHA} 12 a:b:.. lib",
        f"{SHA} 12 a:b/c:1 lib",
        f"{SHA} 12 a:b:1 modules/../lib",
        f"{SHA} 12 a:b:1@../x lib",
        f"{SHA} 12 a:b:1 lib\n{SHA} 12 a:b:1 lib",
    ],
)
def test_a_line_that_is_none_is_refused_and_named(line: str) -> None:
    with pytest.raises(LocalError) as caught:
        parse_lock(line, name="x.lock")

    assert caught.value.facts["file"] == "x.lock"


@given(st.text())
def test_any_text_is_a_lock_or_an_error(text: str) -> None:
    try:
        artifacts = parse_lock(text, name="x.lock")
    except LocalError:
        return

    assert all(not Path(artifact.path).is_absolute() and ".." not in artifact.path.split("/") for artifact in artifacts)


def test_an_artifact_that_is_not_pinned_is_an_error() -> None:
    with pytest.raises(LocalError, match="is not in the lock file"):
        version_of((), "kafka_2.13")
