"""How a study goes: who enters for it."""

import pytest
from creator_server import Served, drawn

from rlds_creator.model import Role


class Lab:
    """A server with an owner, and those whom they let in."""

    def __init__(self, served):
        self.served = served
        self.owner = self.enter(served.creator.store.invite(Role.OWNER)[1], "Olga")

    def enter(self, token, name):
        """Lets somebody in; returns the cookie of their browser."""
        said = {"token": token, "name": name}
        status, headers, _ = self.served.fetch("POST", "/api/enter", said)
        assert status == 200
        return headers["set-cookie"].split("; ")[0]

    def invited(self, study, name="Pia"):
        """The cookie of a participant who enters by a link to a study."""
        wish = {"role": "participant", "study": study["id"]}
        link = self.good("POST", "/api/invites", wish)["link"]
        return self.enter(link.partition("#")[2], name)

    def study(self, *environments, **more):
        """Adds an enabled study."""
        study = {"name": "Walk", "state": "enabled", "environments": environments or [drawn()]}
        return self.good("POST", "/api/studies", {**study, **more})

    def ask(self, cookie, method, path, body=None):
        return self.served.call(method, path, body, cookie=cookie)

    def good(self, method, path, body=None):
        return self.served.good(method, path, body, cookie=self.owner)


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with Served(tmp_path_factory.mktemp("lab"), is_single_user=False) as served:
        yield Lab(served)


def test_a_link_leads_to_one_study_and_shows_no_other(lab) -> None:
    study, other = lab.study(), lab.study(name="Other")
    player = lab.invited(study)
    assert lab.ask(player, "GET", "/api/me")[1]["person"]["study"] == study["id"]
    listed = lab.ask(player, "GET", "/api/studies")[1]["studies"]
    assert [one["id"] for one in listed] == [study["id"]]
    assert lab.ask(player, "GET", f"/api/studies/{other['id']}")[0] == 404
    assert lab.ask(player, "POST", "/api/plays", {"study": other["id"]})[0] == 404
    play = lab.ask(player, "POST", "/api/plays", {"study": study["id"]})[1]["play"]
    assert lab.ask(player, "DELETE", f"/api/plays/{play}")[0] == 200

    # Who becomes an annotator sees all of them, as annotators do.
    person = lab.ask(player, "GET", "/api/me")[1]["person"]["id"]
    lab.good("PATCH", f"/api/people/{person}", {"role": "annotator"})
    assert len(lab.ask(player, "GET", "/api/studies")[1]["studies"]) > 1


def test_a_link_to_a_study_is_for_participants_and_ends_with_it(lab) -> None:
    study = lab.study()
    for wish, status in (
        ({"role": "owner", "study": study["id"]}, 400),
        ({"role": "participant", "study": "missing"}, 404),
    ):
        assert lab.ask(lab.owner, "POST", "/api/invites", wish)[0] == status
    link = lab.good("POST", "/api/invites", {"role": "participant", "study": study["id"]})["link"]
    lab.good("DELETE", f"/api/studies/{study['id']}")
    said = {"token": link.partition("#")[2], "name": "Late"}
    assert lab.ask("", "POST", "/api/enter", said)[0] == 401
