"""A scan against a local registry: what each filter finds, and what one failure does to the others."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Any

import pytest

from airunway_catalogue.crawl import Crawl, Full
from airunway_catalogue.labels import ImageLabels
from airunway_catalogue.registry import Limits, Registry
from airunway_catalogue.scan import Image as Selected
from airunway_catalogue.scan import plan_of
from airunway_catalogue.source_status import FilterResult
from airunway_testing.registry.faults import Garbage, Hang, HttpStatus
from airunway_testing.registry.server import Image, LocalRegistry, container_registry

IMAGES = [
    Image("team/llama", "1.0"),
    Image("team/llama", "1.1"),
    Image("team/llama", "latest"),
    Image("team/qwen", "2.0"),
    Image("other/x", "1"),
]


class Scan:
    """One scan, and what it made."""

    def __init__(self, local: LocalRegistry, *, room: int = 1000, **spec: Any) -> None:
        self.plan = plan_of({"spec": {"registry": local.host, "insecure": True, **spec}})
        self.made: list[str] = []
        self.room = room
        self.progressed = 0
        self.crawl: Crawl

    async def make(self, image: Selected, _found: ImageLabels) -> str:
        if len(self.made) >= self.room:
            raise Full
        self.made.append(image.label)
        await asyncio.sleep(0)
        return ""

    async def progress(self) -> None:
        self.progressed += 1

    async def run(self, *, known: tuple[str, ...] = (), limits: Limits | None = None) -> tuple[FilterResult, ...]:
        async with Registry(self.plan.address, limits=limits or Limits(request=3)) as registry:
            self.crawl = Crawl(registry, self.plan, known=known, make=self.make, on_progress=self.progress)
            await self.crawl.run()
        return self.crawl.in_order()


def filters(*images: str, **more: Any) -> list[dict[str, Any]]:
    return [{"image": image, **more} for image in images]


async def test_filters_are_or_and_an_image_of_two_is_made_once() -> None:
    async with container_registry(IMAGES) as local:
        scan = Scan(local, filters=filters("team/llama", "team/*", "nothing/*"))
        results = await scan.run()
    assert [(each.found, each.reason) for each in results] == [(3, ""), (4, ""), (0, "")]
    assert scan.made == ["team/llama:1.1", "team/llama:1.0", "team/llama:latest", "team/qwen:2.0"]
    assert scan.progressed == 1


async def test_the_catalog_is_read_only_for_wildcards_and_once() -> None:
    async with container_registry(IMAGES) as local:
        await Scan(local, filters=filters("team/llama", "team/qwen")).run()
        assert local.asked("catalog") == 0
        await Scan(local, filters=filters("team/*", "other/*")).run()
        assert local.asked("catalog") == 1


async def test_versions_and_exclusions() -> None:
    async with container_registry(IMAGES) as local:
        scan = Scan(local, filters=filters("*/*", exclude=["other/*"], versions=[">=1.1"]))
        await scan.run()
    assert scan.made == ["team/llama:1.1", "team/qwen:2.0"]


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (401, "Unauthorized"),
        (403, "Forbidden"),
        (404, "SourceNotFound"),
        (429, "RateLimited"),
        (500, "ServerError"),
        (503, "ServerError"),
    ],
)
async def test_a_status_is_the_reason_of_its_filter_and_of_no_other(status: int, reason: str) -> None:
    async with container_registry(IMAGES) as local:
        local.faults.inject(HttpStatus(status=status, headers={"Retry-After": "90"}), repository="team/llama")
        scan = Scan(local, filters=filters("team/llama", "team/qwen"))
        results = await scan.run()
    assert [(each.found, each.reason) for each in results] == [(0, reason), (1, "")]
    assert scan.made == ["team/qwen:2.0"]
    assert scan.crawl.retry_after == (90 if status in (429, 500, 503) else None)


@pytest.mark.parametrize(("status", "reason"), [(401, "Unauthorized"), (404, "ImageNotFound"), (429, "RateLimited")])
async def test_a_status_of_manifests_is_the_reason_of_the_filter(status: int, reason: str) -> None:
    async with container_registry(IMAGES) as local:
        local.faults.inject(HttpStatus(status=status), route="manifest", repository="team/llama")
        results = await Scan(local, filters=filters("team/llama", "team/qwen")).run()
    assert [(each.found, each.reason) for each in results] == [(0, reason), (1, "")]


async def test_a_server_failure_of_one_image_is_a_partial_failure() -> None:
    async with container_registry(IMAGES) as local:
        local.faults.inject(HttpStatus(status=500), route="blob", times=1)
        [result] = await Scan(local, filters=filters("team/llama")).run()
        assert (result.found, result.reason) == (2, "ServerError")
        local.faults.inject(HttpStatus(status=500), route="manifest")
        [result] = await Scan(local, filters=filters("team/llama")).run()
        assert (result.found, result.reason) == (0, "ServerError")


async def test_one_bad_image_is_passed_over_and_named() -> None:
    async with container_registry(IMAGES) as local:
        local.put_manifest("team/llama", "1.2", b"<html>")
        scan = Scan(local, filters=filters("team/llama"))
        [result] = await scan.run()
    assert (result.found, result.reason) == (3, "")
    assert scan.made == ["team/llama:1.1", "team/llama:1.0", "team/llama:latest"]
    assert scan.crawl.notes == ["filter team/llama: team/llama:1.2: its manifest is no JSON object"]


async def test_labels_that_cannot_be_read_name_image_and_label() -> None:
    image = Image("a", "1", labels={"ai.airunway.model.recommendedDeployments": "oops"})
    async with container_registry([image]) as local:
        scan = Scan(local, filters=filters("a"))
        await scan.run()
    assert "a:1: label ai.airunway.model.recommendedDeployments: 'oops' is no object" in scan.crawl.notes[0]


async def test_a_filter_that_cannot_be_used_asks_nothing() -> None:
    async with container_registry(IMAGES) as local:
        scan = Scan(local, filters=[{"image": "team/llama", "versions": ["~1.2"]}, {"image": "team/qwen"}])
        results = await scan.run()
        assert {each.repository for each in local.requests} == {"team/qwen"}
    assert [each.reason for each in results] == ["InvalidConstraint", ""]
    assert "'~1.2'" in results[0].message


async def test_repositories_of_others_are_passed_over_by_a_wildcard() -> None:
    async with container_registry(IMAGES) as local:
        local.faults.inject(HttpStatus(status=403), route="tags", repository="other/x")
        scan = Scan(local, filters=filters("*/*", "other/*"))
        results = await scan.run()
    assert [(each.found, each.reason) for each in results] == [(4, ""), (0, "Forbidden")]
    assert "other/x" in scan.crawl.notes[0]


async def test_a_registry_without_a_catalog_says_what_to_do() -> None:
    async with container_registry(IMAGES) as local:
        local.faults.inject(HttpStatus(status=404), route="catalog")
        results = await Scan(local, filters=filters("team/*", "team/llama", "other/*")).run()
    assert [each.reason for each in results] == ["SourceNotFound", "", "SourceNotFound"]
    assert results[0].message.count("name images without * and ?") == 1
    assert results[2].message == results[0].message


async def test_a_registry_that_is_not_reached_is_asked_once() -> None:
    async with container_registry(IMAGES) as local:
        local.faults.inject(Hang(seconds=5))
        started = monotonic()
        results = await Scan(local, filters=filters(*["team/llama"] * 8)).run(limits=Limits(request=0.5))
        assert monotonic() - started < 3
    assert {each.reason for each in results} == {"Timeout"}


async def test_the_limit_counts_before_images_are_read() -> None:
    images = [Image("a", f"1.{number}") for number in range(200)]
    async with container_registry(images) as local:
        scan = Scan(local, filters=filters("a"), room=10, maxModels=10)
        [result] = await scan.run()
        assert scan.made == [f"a:1.{number}" for number in range(199, 189, -1)]
        assert local.asked("manifest") < 40
    assert result.found == 200
    assert scan.crawl.full
    assert "maxModels is reached: 10 templates; 190 more images" in scan.crawl.notes[0]


async def test_images_of_which_everything_is_there_are_not_read_again() -> None:
    async with container_registry(IMAGES) as local:
        known = tuple(f"{local.host}/team/llama:{tag}" for tag in ("1.0", "1.1"))
        scan = Scan(local, filters=filters("team/llama"))
        [result] = await scan.run(known=known)
        assert local.asked("manifest") == 1
    assert scan.made == ["team/llama:latest"]
    assert result.found == 3


async def test_no_more_requests_at_a_time_than_the_limit() -> None:
    images = [Image("a", f"1.{number}") for number in range(100)]
    async with container_registry(images) as local:
        local.faults.inject(Hang(seconds=0.01), route="manifest")
        await Scan(local, filters=filters("a")).run()
        assert 2 <= local.most_at_once <= 8


async def test_a_hundred_thousand_tags_and_more() -> None:
    tags = b'{"tags": [' + b",".join(b'"1.%d"' % number for number in range(120_000)) + b"]}"
    async with container_registry(IMAGES) as local:
        local.faults.inject(Garbage(body=tags), route="tags")
        scan = Scan(local, filters=filters("team/llama", versions=[">=1.99990", "<1.99995"]))
        started = monotonic()
        [result] = await scan.run()
        assert monotonic() - started < 20
        assert local.asked("manifest") == 5
    assert (result.found, result.reason) == (0, "ImageNotFound")
    assert "more tags than the 100000 that are read" in scan.crawl.notes[0]


async def test_what_was_found_until_the_time_is_up_counts() -> None:
    async with container_registry(IMAGES) as local:
        local.faults.inject(Hang(seconds=30), repository="team/qwen")
        scan = Scan(local, filters=[*filters("team/llama", "team/qwen", "other/x"), *filters("a", versions=["~1"])])
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.7):
                await scan.run(limits=Limits(request=30))
        scan.crawl.time_is_up(0.7)
    assert [(each.found, each.reason) for each in scan.crawl.in_order()] == [
        (3, ""),
        (0, "Timeout"),
        (0, "Timeout"),
        (0, "InvalidConstraint"),
    ]
