"""The course of a study: invitations, consent and quotas."""

import io
import time
import zipfile

import pytest
from creator_server import Served, drawn

import envlogger
from rlds_creator.model import Role


class Lab:
    """A server with an owner, who invites other people."""

    def __init__(self, served):
        self.served = served
        self.owner = self.enter(served.creator.store.invite(Role.OWNER)[1], "Olga")

    def enter(self, token, name):
        """Enters by a token; returns the cookie of the browser."""
        body = {"token": token, "name": name}
        status, headers, _ = self.served.fetch("POST", "/api/enter", body)
        assert status == 200
        return headers["set-cookie"].split("; ")[0]

    def invite(self, study, name="Pia"):
        """Invites a participant to a study; returns the cookie of their browser."""
        request = {"role": "participant", "study": study["id"]}
        link = self.good("POST", "/api/invites", request)["link"]
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


def test_study_link_shows_only_its_study(lab) -> None:
    study, other = lab.study(), lab.study(name="Other")
    player = lab.invite(study)
    assert lab.ask(player, "GET", "/api/me")[1]["person"]["study"] == study["id"]
    studies = lab.ask(player, "GET", "/api/studies")[1]["studies"]
    assert [one["id"] for one in studies] == [study["id"]]
    assert lab.ask(player, "GET", f"/api/studies/{other['id']}")[0] == 404
    assert lab.ask(player, "POST", "/api/plays", {"study": other["id"]})[0] == 404
    play = lab.ask(player, "POST", "/api/plays", {"study": study["id"]})[1]["play"]
    assert lab.ask(player, "DELETE", f"/api/plays/{play}")[0] == 200

    path = f"/api/studies/{study['id']}"
    lab.good("POST", f"{path}/state", {"state": "disabled"})
    status, answer = lab.ask(player, "GET", path)
    assert (status, answer["error"]["code"]) == (403, "not_enabled")

    # A participant who becomes an annotator sees all studies.
    person = lab.ask(player, "GET", "/api/me")[1]["person"]["id"]
    lab.good("PATCH", f"/api/people/{person}", {"role": "annotator"})
    assert len(lab.ask(player, "GET", "/api/studies")[1]["studies"]) > 1


def test_study_link_is_for_participants_and_ends_with_the_study(lab) -> None:
    study = lab.study()
    for request, status in (
        ({"role": "owner", "study": study["id"]}, 400),
        ({"role": "participant", "study": "missing"}, 404),
    ):
        assert lab.ask(lab.owner, "POST", "/api/invites", request)[0] == status
    link = lab.good("POST", "/api/invites", {"role": "participant", "study": study["id"]})["link"]
    lab.good("DELETE", f"/api/studies/{study['id']}")
    body = {"token": link.partition("#")[2], "name": "Late"}
    assert lab.ask("", "POST", "/api/enter", body)[0] == 401


def start_play(lab, study, cookie, environment=None):
    """Asks to play; returns the status and the answer."""
    request = {"study": study["id"], "environment": environment}
    return lab.ask(cookie, "POST", "/api/plays", request)


def play_episode(lab, study, cookie, environment=None, verdict="completed"):
    """Plays an episode; returns its record."""
    status, answer = start_play(lab, study, cookie, environment)
    assert status == 200, answer
    with lab.served.player(answer["play"], cookie=cookie) as player:
        player.until("state", state="ready")
        player.until_step(0)
        player.walk("ArrowRight")
        player.say("control", do="end")
        player.until("state", state="ended")
        player.say("control", do="confirm", value=verdict)
        return player.until("episode", episode__state=verdict)["episode"]


def download_metadata(lab, tmp_path, episodes, **request):
    """Downloads episodes; returns their metadata."""
    body = {"episodes": [one["id"] for one in episodes], "name": "got", **request}
    download = lab.good("POST", "/api/exports", body)
    while download["state"] not in ("done", "failed"):
        time.sleep(0.05)
        download = lab.good("GET", f"/api/exports/{download['id']}")
    assert download["state"] == "done", download["error"]
    _, _, content = lab.served.fetch("GET", f"/api/exports/{download['id']}/file", cookie=lab.owner)
    folder = tmp_path / download["id"]
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        archive.extractall(folder)
    with envlogger.Reader(folder / "got" / "got") as reader:
        return list(reader.episode_metadata())


def test_consent_is_required_and_stored_with_the_data(lab, tmp_path) -> None:
    study = lab.study(consent="We record **keys**.")
    player = lab.invite(study)
    status, answer = start_play(lab, study, player)
    assert (status, answer["error"]["code"]) == (403, "consent")
    path = f"/api/studies/{study['id']}/consent"
    assert lab.ask(player, "POST", path, {"text": "We record nothing."})[0] == 409
    before = time.time()
    assert lab.ask(player, "POST", path, {"text": study["consent"]})[0] == 200
    first = play_episode(lab, study, player)

    # A changed text needs a new consent; the first episode keeps the old one.
    changed = lab.good("PUT", f"/api/studies/{study['id']}", {**study, "consent": "And mice."})
    assert start_play(lab, changed, player)[0] == 403
    lab.ask(player, "POST", path, {"text": "And mice."})
    second = play_episode(lab, changed, player)
    # The list has both, the newest first, a page at a time.
    consents = [
        lab.good("GET", f"{path}s?offset={offset}&limit=1")["consents"] for offset in range(3)
    ]
    assert [[(one["name"], one["text"]) for one in page] for page in consents] == [
        [("Pia", "And mice.")],
        [("Pia", "We record **keys**.")],
        [],
    ]
    assert lab.good("GET", f"{path}s")["total"] == 2
    assert lab.ask(lab.owner, "GET", f"{path}s?limit=0")[0] == 400
    assert lab.ask(lab.owner, "GET", "/api/studies/nothing/consents")[0] == 404
    rows = download_metadata(lab, tmp_path, [first, second])
    assert [one["consent"] for one in rows] == ["We record **keys**.", "And mice."]
    assert [one["consent_time"] for one in rows] == [
        page[0]["created"] for page in (consents[1], consents[0])
    ]
    assert before <= rows[0]["consent_time"] <= first["started"] <= rows[1]["consent_time"]


def test_first_episodes_are_practice_and_not_data(lab, tmp_path) -> None:
    study = lab.study(practice=2, quota=2)
    player = lab.invite(study)
    kinds = ["rejected", "completed", "cancelled", "completed", "completed"]
    episodes = [play_episode(lab, study, player, verdict=one) for one in kinds]
    # A rejected episode does not count as practice.
    assert [one["is_practice"] for one in episodes] == [True, True, True, False, False]
    assert start_play(lab, study, player)[1]["error"]["code"] == "quota"
    (study_row,) = lab.ask(player, "GET", "/api/studies")[1]["studies"]
    assert (study_row["num_episodes"], study_row["num_completed"], study_row["mine"]) == (5, 2, 2)
    path = f"/api/episodes?study={study['id']}&is_practice="
    assert [lab.good("GET", path + value)["total"] for value in ("true", "false")] == [3, 2]

    assert len(download_metadata(lab, tmp_path, episodes)) == 2
    rows = download_metadata(lab, tmp_path, episodes, practice=True)
    assert [one["is_practice"] for one in rows] == [True, True, True, False, False]
    request = {"episodes": [episodes[0]["id"]], "name": "got"}
    assert lab.ask(lab.owner, "POST", "/api/exports", request)[0] == 400


def test_total_quotas_end_an_environment_and_the_study(lab) -> None:
    study = lab.study({**drawn(), "quota": 1}, drawn(), total_quota=3)
    first, second = (environment["id"] for environment in study["environments"])
    players = [lab.invite(study, name) for name in ("Pia", "Pit")]
    assert play_episode(lab, study, players[0], first)["environment"] == first
    status, answer = start_play(lab, study, players[1], first)
    assert (status, answer["error"]["code"]) == (403, "quota")
    assert "Choose another" in answer["error"]["message"]
    for player in players:
        assert play_episode(lab, study, player, second)["environment"] == second
    assert start_play(lab, study, lab.invite(study, "Pam"), second)[1]["error"]["code"] == "quota"
