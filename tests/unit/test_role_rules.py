from apps.directory.roles import (
    Identity,
    RoleChange,
    Rule,
    StoredRole,
    WantedRoles,
    compare,
    compute_roles,
    read_groups,
)


def person(*groups: str, provider: str = "sso") -> list[Identity]:
    return [Identity(provider, {"id_token": {"groups": list(groups)}, "userinfo": {}})]


def rule(pattern: str, project: str = "p", role: str = "member", provider: str = "") -> Rule:
    return Rule("groups", pattern, provider=provider, project=project, role=role)


def test_the_highest_role_of_all_rules_counts() -> None:
    rules = [rule("ml", role="maintainer"), rule("m*", role="viewer"), rule("other")]
    assert compute_roles(rules, person("ml")) == WantedRoles({"p": "maintainer"})


def test_a_pattern_is_the_whole_group_or_its_beginning() -> None:
    rules = [rule("ml", "a"), rule("ml-*", "b")]
    assert compute_roles(rules, person("ml-ops")) == WantedRoles({"b": "member"})
    assert compute_roles(rules, person("ML", "xml")) == WantedRoles()


def test_a_rule_of_one_provider_does_not_count_for_another() -> None:
    assert compute_roles([rule("ml", provider="sso")], person("ml", provider="guests")) == WantedRoles()


def test_a_project_of_the_groups_name_is_wanted_by_name() -> None:
    made = Rule("groups", "team-*", create_project=True, role="member")
    assert compute_roles([made], person("team-a", "b")) == WantedRoles(groups={"team-a": "member"})


def test_an_administrator_is_made_by_a_group() -> None:
    assert compute_roles([Rule("groups", "root", administrator=True)], person("root")) == WantedRoles(
        administrator=True
    )


def test_without_known_claims_nothing_is_wanted_or_taken() -> None:
    assert compute_roles([rule("ml")], [Identity("sso", {})]) is None


def test_a_claim_that_the_provider_left_out_decides_nothing_and_others_do() -> None:
    overage = {"id_token": {"_claim_names": {"groups": "src1"}, "_claim_sources": {}}, "userinfo": {}}
    by_group, by_role = rule("ml", project="a"), Rule("roles", "ml", project="b", role="member")
    for claims in (overage, {"id_token": {"hasgroups": True}}):
        wanted = compute_roles([by_group, by_role], [Identity("sso", claims)])
        assert wanted == WantedRoles(undecided=(by_group,))
        assert wanted.may_keep("a", of_group=False)
        assert not wanted.may_keep("b", of_group=True)
        assert not wanted.may_stay_administrator


def test_groups_are_read_along_a_path_and_from_names_with_dots() -> None:
    claims = {
        "id_token": {"realm_access": {"roles": ["a", 1, None, "", "x" * 201]}, "https://example.org/groups": "b"},
        "userinfo": {"realm_access": {"roles": ["c", "a"]}},
    }
    assert read_groups(claims, "realm_access.roles") == ["a", "c"]
    assert read_groups(claims, "https://example.org/groups") == ["b"]
    assert read_groups(claims, "realm_access") == []
    assert read_groups({"groups": ["saml"]}, "groups") == ["saml"]


def test_a_persons_role_stays_and_the_higher_one_counts() -> None:
    given = {"p": StoredRole("member", by_rule=False)}
    assert compare(given, {}) == {}
    assert compare(given, {"p": "viewer"}) == {}
    assert compare(given, {"p": "member"}) == {}
    raised = compare(given, {"p": "maintainer"})
    assert raised == {"p": RoleChange("member", "maintainer", by_rule=True, kept="member")}
    back = compare({"p": StoredRole("maintainer", by_rule=True, kept="member")}, {})
    assert back == {"p": RoleChange("maintainer", "member", by_rule=False)}


def test_a_rules_role_is_added_changed_and_removed() -> None:
    by_rule = {"p": StoredRole("member", by_rule=True)}
    assert compare({}, {"p": "viewer"}) == {"p": RoleChange(None, "viewer", by_rule=True)}
    assert compare(by_rule, {"p": "viewer"}) == {"p": RoleChange("member", "viewer", by_rule=True)}
    assert compare(by_rule, {}) == {"p": RoleChange("member", None, by_rule=True)}
    assert compare(by_rule, {"p": "member"}) == {}
