"""Permissions of each role at each route, over HTTP."""

import pytest
from creator_server import Served, drawn

from rlds_creator.model import EpisodeRecord, EpisodeState, Role
from rlds_creator.server.security import Hosts

ROLES = ["owner", "annotator", "participant", "viewer", "nobody"]
STUDY = {"name": "New", "environments": []}
FALL = {"layer": "fall", "type": "flag", "value": True, "first": 1}
REJECTED = {"layer": "verdict", "type": "choice", "value": "rejected"}


class People:
    """A server with a person of each role, an enabled study and a draft."""

    def __init__(self, served):
        self.served = served
        self.cookies, self.ids = {"nobody": "rlds=1"}, {}
        for role in Role:
            self.cookies[role.value] = self.enter(role)
            me = self.ask(role.value, "GET", "/api/me")[1]
            self.ids[role.value] = me["person"]["id"]
        self.study = self.ask("owner", "POST", "/api/studies", self.new_study("enabled"))[1]
        self.draft = self.ask("owner", "POST", "/api/studies", self.new_study("draft"))[1]

    def enter(self, role):
        """Adds a person by an invitation; returns the cookie of their browser."""
        _, token = self.served.creator.store.invite(role)
        body = {"token": token, "name": f"The {role}"}
        status, headers, _ = self.served.fetch("POST", "/api/enter", body)
        assert status == 200
        cookie, *flags = headers["set-cookie"].split("; ")
        assert {"HttpOnly", "SameSite=lax"} <= {*flags}
        return cookie

    def new_study(self, state):
        return {
            "name": state,
            "state": state,
            "description": "for the staff",
            "environments": [drawn()],
        }

    def ask(self, role, method, path, body=None):
        return self.served.call(method, path, body, cookie=self.cookies[role])

    def add_episode(self, role, name):
        """Adds an episode of a person; returns its identifier."""
        episode = EpisodeRecord(
            id=name,
            study=self.study["id"],
            environment=self.study["environments"][0]["id"],
            session="visit",
            person=self.ids[role],
            number=0,
            state=EpisodeState.COMPLETED,
            num_steps=9,
        )
        return self.served.creator.store.save_episode(episode).id


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    directory = tmp_path_factory.mktemp("lab")
    with Served(directory, is_single_user=False, hosts=Hosts("127.0.0.1")) as served:
        yield People(served)


def granted_roles(answers):
    """Returns the roles whose requests were granted; unknown users must log in."""
    assert answers.pop("nobody") == 401
    assert set(answers.values()) <= {200, 403, 404}
    return [role for role, status in answers.items() if status == 200]


# Requests, and the roles that may send them.
TABLE = [
    # This request starts a process.
    pytest.param("GET", "/api/families", None, "owner", marks=pytest.mark.slow),
    ("GET", "/api/studies", None, "owner annotator participant viewer"),
    ("POST", "/api/studies", STUDY, "owner"),
    ("GET", "/api/studies/{study}", None, "owner annotator participant viewer"),
    ("GET", "/api/studies/{draft}", None, "owner annotator viewer"),
    ("PUT", "/api/studies/{draft}", {**STUDY, "version": 1}, "owner"),
    ("POST", "/api/studies/{draft}/state", {"state": "draft"}, "owner"),
    ("GET", "/api/studies/{study}/statistics", None, "owner annotator viewer"),
    ("GET", "/api/studies/{study}/consents", None, "owner annotator viewer"),
    ("GET", "/api/episodes", None, "owner annotator participant viewer"),
    ("GET", "/api/episodes?person={somebody}", None, "owner annotator viewer"),
    ("GET", "/api/episodes/{foreign}", None, "owner annotator viewer"),
    ("GET", "/api/episodes/{own}", None, "owner annotator participant viewer"),
    ("PUT", "/api/episodes/{fresh}/notes", {"notes": "!", "version": 0}, "owner annotator"),
    ("GET", "/api/episodes/{foreign}/view/labels", None, "owner annotator viewer"),
    ("GET", "/api/episodes/{own}/view/labels", None, "owner annotator participant viewer"),
    ("POST", "/api/episodes/{foreign}/view/labels", REJECTED, "owner annotator"),
    ("POST", "/api/episodes/{own}/view/labels", FALL, "owner annotator"),
    ("DELETE", "/api/episodes/{own}/view/labels/{tag}", None, "owner annotator"),
    ("POST", "/api/episodes/{own}/view/labels/{tag}", None, "owner annotator"),
    ("DELETE", "/api/episodes/{fresh}", None, "owner"),
    ("DELETE", "/api/episodes/{fresh_own}", None, "owner annotator participant"),
    ("POST", "/api/episodes/delete", {"ids": ["{fresh}"]}, "owner"),
    ("POST", "/api/episodes/delete", {"ids": ["{fresh_own}"]}, "owner annotator participant"),
    ("GET", "/api/people", None, "owner"),
    ("PATCH", "/api/people/{somebody}", {"role": "participant"}, "owner"),
    ("POST", "/api/invites", {"role": "viewer"}, "owner"),
    ("DELETE", "/api/invites/{invite}", None, "owner"),
    ("GET", "/api/formats", None, "owner annotator viewer"),
    ("GET", "/api/exports", None, "owner annotator viewer"),
    ("DELETE", "/api/studies/{fresh_study}", None, "owner"),
]


@pytest.mark.parametrize(
    ("method", "path", "body", "roles"), TABLE, ids=lambda value: str(value)[:40]
)
def test_request_is_granted_to_its_roles_only(people, method, path, body, roles) -> None:
    store = people.served.creator.store
    answers = {}
    for index, role in enumerate(ROLES):
        name = f"{abs(hash((method, path, str(body)))):x}_{index}"
        player = role if role in people.ids else "owner"
        own = people.add_episode(player, f"own_{name}")
        fresh = people.add_episode("owner" if player != "owner" else "viewer", f"foreign_{name}")
        ids = {
            "study": people.study["id"],
            "draft": people.draft["id"],
            "own": own,
            "foreign": fresh,
            "fresh": fresh,
            "fresh_own": own,
            "somebody": store.add_person("Somebody", Role.PARTICIPANT).id,
        }
        if "{tag}" in path:
            ids["tag"] = store.add_label(own, "fall", begin=1, end=2).id
        if "{invite}" in path:
            ids["invite"] = store.invite(Role.VIEWER)[0]
        if "{fresh_study}" in path or method == "PUT":
            study = people.ask("owner", "POST", "/api/studies", people.new_study("draft"))[1]
            ids["fresh_study"] = ids["draft"] = study["id"]
        content = body
        if body and "ids" in body:
            content = {"ids": [one.format(**ids) for one in body["ids"]]}
        answers[role] = people.ask(role, method, path.format(**ids), content)[0]
    assert granted_roles(answers) == roles.split()


def test_owner_tries_any_environment_of_a_study_that_assigns_them(people) -> None:
    study = {**people.new_study("enabled"), "assignment": "random"}
    study["environments"] = [drawn(), drawn("box")]
    study = people.ask("owner", "POST", "/api/studies", study)[1]
    for environment in study["environments"]:
        request = {"study": study["id"], "environment": environment["id"]}
        status, answer = people.ask("owner", "POST", "/api/plays", request)
        assert (status, answer["environment"]["id"]) == (200, environment["id"])
        status, answer = people.ask("participant", "POST", "/api/plays", request)
        assert status == 400
        assert "chooses the environment" in answer["error"]["message"]


@pytest.mark.slow
def test_viewers_and_unknown_users_may_not_play(people) -> None:
    """Over HTTP, and on the socket."""
    statuses = {}
    for role in ROLES:
        request = {"study": people.study["id"]}
        status, answer = people.ask(role, "POST", "/api/plays", request)
        statuses[role] = status
        if status == 200:
            if role == "owner":
                play = answer["play"]
            else:
                people.ask(role, "DELETE", f"/api/plays/{answer['play']}")
    assert granted_roles(statuses) == ["owner", "annotator", "participant"]
    answers = {
        role: people.ask(role, "POST", "/api/plays", {"study": people.draft["id"]})
        for role in ["annotator", "participant"]
    }
    assert [status for status, _ in answers.values()] == [403, 404]

    # A play of another person is not open to them; other roles get no socket at all.
    assert people.ask("annotator", "DELETE", f"/api/plays/{play}")[0] == 404
    with people.served.player(play, cookie=people.cookies["annotator"]) as player:
        assert player.until("bye")["reason"] == "expired"
    for role in ("viewer", "nobody"):
        with pytest.raises(Exception, match="HTTP 403"):
            people.served.player(play, cookie=people.cookies[role])
    with people.served.player(play, cookie=people.cookies["owner"]) as player:
        assert player.until("hello")["play"] == play
        # The play of a disabled person ends.
        cookie = people.enter(Role.OWNER)
        path = f"/api/people/{people.ids['owner']}"
        people.served.good("PATCH", path, {"is_disabled": True}, cookie=cookie)
        assert player.until("bye")["reason"] == "closed"
        assert people.ask("owner", "GET", "/api/studies")[0] == 401
        people.served.good("PATCH", path, {"is_disabled": False}, cookie=cookie)


def test_latest_label_of_each_person_is_shown(people) -> None:
    path = f"/api/episodes/{people.add_episode('participant', 'judged')}/view/labels"

    def add_label(role, layer, value):
        label = {"layer": layer, "type": "choice", "value": value}
        assert people.ask(role, "POST", path, label)[0] == 200

    def shown_labels(role="viewer"):
        labels = people.ask(role, "GET", path)[1]["labels"]
        assert labels[0]["created"] > 0
        return [(one["layer"], one["value"], one["author"], one["decides"]) for one in labels]

    by_player = ("verdict", "completed", "The participant", False)
    add_label("annotator", "verdict", "completed")
    assert shown_labels() == [("verdict", "completed", "The annotator", True), by_player]
    add_label("owner", "verdict", "rejected")
    add_label("owner", "success", "no")
    add_label("annotator", "success", "yes")
    assert shown_labels() == [
        ("verdict", "rejected", "The owner", True),
        ("verdict", "completed", "The annotator", False),
        by_player,
        ("success", "yes", "The annotator", True),
        ("success", "no", "The owner", False),
    ]
    episodes = people.ask("viewer", "GET", "/api/episodes?queue=disagreement")[1]["episodes"]
    assert "judged" in {one["id"] for one in episodes}
    # A new choice of an annotator replaces their earlier one.
    add_label("annotator", "verdict", "cancelled")
    assert shown_labels()[:2] == [
        ("verdict", "cancelled", "The annotator", True),
        ("verdict", "rejected", "The owner", False),
    ]
    own = [(one["layer"], one["is_mine"]) for one in people.ask("owner", "GET", path)[1]["labels"]]
    assert own.count(("verdict", True)) == 1
    # Participants see the valid labels and their own ones, without names of other people.
    assert shown_labels("participant") == [
        ("verdict", "cancelled", "", True),
        by_player,
        ("success", "yes", "", True),
    ]
    labels = people.ask("annotator", "GET", path)[1]["labels"]
    (success,) = (one for one in labels if (one["layer"], one["value"]) == ("success", "yes"))
    assert people.ask("annotator", "DELETE", f"{path}/{success['id']}")[0] == 200
    assert ("success", "no", "The owner", True) in shown_labels()  # The earlier choice counts.
    assert people.ask("annotator", "POST", f"{path}/{success['id']}")[0] == 200
    assert ("success", "yes", "The annotator", True) in shown_labels()


def test_participants_see_no_drafts_and_only_their_own_episodes(people) -> None:
    study = people.ask("participant", "GET", f"/api/studies/{people.study['id']}")[1]
    assert study["description"] == ""
    names = {one["name"] for one in people.ask("participant", "GET", "/api/studies")[1]["studies"]}
    assert "enabled" in names
    assert "draft" not in names
    people.add_episode("participant", "mine")
    people.add_episode("annotator", "theirs")
    episodes = people.ask("participant", "GET", "/api/episodes?limit=1000")[1]["episodes"]
    assert {one["person"] for one in episodes} == {people.ids["participant"]}
    assert episodes[0]["may"] == ["delete"]
    mixed = {"ids": ["mine", "theirs"]}
    assert people.ask("participant", "POST", "/api/episodes/delete", mixed)[0] == 403
    assert people.ask("participant", "GET", "/api/episodes/mine")[0] == 200, "all or none"


def test_invitation_link_admits_one_person(people) -> None:
    invite = people.ask("owner", "POST", "/api/invites", {"role": "viewer", "name": "Kim"})[1]
    address, _, token = invite["link"].partition("#")
    assert address.endswith("/enter")
    person = people.served.good("POST", "/api/enter", {"token": token, "name": ""})["person"]
    assert (person["name"], person["role"]) == ("Kim", "viewer")
    status, answer = people.served.call("POST", "/api/enter", {"token": token})
    assert (status, answer["error"]["code"]) == (401, "invite")
    people_and_invites = people.ask("owner", "GET", "/api/people")[1]
    assert token not in str(people_and_invites)

    invite = people.ask("owner", "POST", "/api/invites", {"role": "viewer"})[1]
    token = invite["link"].partition("#")[2]
    status, answer = people.served.call("POST", "/api/enter", {"token": token, "name": " "})
    assert (status, answer["error"]["code"]) == (400, "name")
    people.served.good("POST", "/api/enter", {"token": token, "name": "Sam"})

    for cookie in ("", "rlds_creator_0=x", people.cookies["viewer"][:-1] + "_"):
        assert people.served.call("GET", "/api/studies", cookie=cookie)[0] == 401
        assert people.served.good("GET", "/api/me", cookie=cookie)["person"] is None
    cookie = people.enter(Role.VIEWER)
    people.served.good("GET", "/api/studies", cookie=cookie)
    people.served.good("POST", "/api/leave", {}, cookie=cookie)
    assert people.served.call("GET", "/api/studies", cookie=cookie)[0] == 401
