"""The event recorder's counts by tenant and object agree with counting everything anew."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from airunway.kube.events import Crowd

_KEYS = st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"), st.integers(0, 3))


@given(st.lists(_KEYS, max_size=60))
def test_the_noisiest_holds_most_and_gives_nothing_for_itself(steps: list[tuple[str, str, int]]) -> None:
    crowd: Crowd[str, tuple[str, str, int]] = Crowd()
    held: dict[tuple[str, str, int], None] = {}
    for key in steps:  # each step adds a key, or removes it if it is there
        tenant, obj, _ = key
        if key in held:
            del held[key]
            crowd.remove(tenant, obj, key)
        else:
            held[key] = None
            crowd.add(tenant, obj, key)
            crowd.add(tenant, obj, key)  # a key counts once
        tenants = Counter(each[0] for each in held)
        for asking in "abc":
            for about in "xyz":
                found = list(crowd.noisiest(asking, about))
                loudest = asking if tenants[asking] == max(tenants.values(), default=0) else None
                objects = Counter(each[:2] for each in held if loudest is None or each[0] == loudest)
                mine = objects[asking, about] if loudest == asking else 0
                if not held or (loudest == asking and mine == max(objects.values(), default=0)):
                    assert found == []
                    continue
                tenant_found, obj_found, _ = found[0]
                assert tenants[tenant_found] == max(tenants.values())
                assert loudest in (None, tenant_found)
                of_tenant = Counter(each[1] for each in held if each[0] == tenant_found)
                assert of_tenant[obj_found] == max(of_tenant.values())
                assert found == [each for each in reversed(held) if each[:2] == (tenant_found, obj_found)]
