"""Who a directory removes from a group is out of what is open."""

from collections.abc import Callable

import pytest
from websockets.exceptions import ConnectionClosed

from apps.accounts.models import Membership, User
from apps.common.clock import now
from apps.directory.application import apply_rules
from apps.directory.models import RoleRule
from tests.api.conftest import Api
from tests.api.scim_client import PATCH_SCHEMA, ScimClient
from tests.proxy.conftest import ENVIRONMENT, Console
from tests.proxy.test_websockets import at_door, channel, send_message

WITHIN_SECONDS = 10


@pytest.mark.database
@pytest.mark.parametrize("change", ["group", "user"])
def test_a_terminal_and_a_proxy_address_close_when_the_group_or_the_user_goes(
    person: Callable[..., Console], change: str
) -> None:
    admin = Api(User.objects.create_superuser("admin"))
    made = admin.post("/directories", {"name": "company"}).data
    directory = ScimClient(made["token"]["token"], made["id"])
    ada = directory.add_user("ada")
    group = directory.add_group("ml", ada)
    about = {"provider": directory.directory, "claim": "groups", "pattern": "ml", "role": "member"}
    RoleRule.objects.create(project_id="project-one", created_at=now(), updated_at=now(), **about)
    apply_rules()
    console = Console(User.objects.get(username="ada"), person("other").port)
    with at_door(console.enter()) as door, channel(console) as terminal:
        door.recv(30)
        assert send_message(terminal, open="exec", command=["sleep", "60"])["ok"]
        if change == "group":
            removal = {"op": "Remove", "path": "members", "value": [{"value": ada}]}
            body = {"schemas": [PATCH_SCHEMA], "Operations": [removal]}
            for token, status in (("fermi_scim_x", 401), (directory.token, 204)):
                headers = {"Host": f"localhost:{console.port}", "Authorization": f"Bearer {token}"}
                assert console.http.patch(f"/scim/v2/Groups/{group}", json=body, headers=headers).status_code == status
        else:
            assert directory.patch(f"/Users/{ada}", {"op": "Replace", "path": "active", "value": "False"}).status == 200
        for connection in (door, terminal):
            with pytest.raises(ConnectionClosed) as closed:
                connection.recv(WITHIN_SECONDS)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1008
    assert not Membership.objects.filter(user__username="ada").exists()
    assert console.open(ENVIRONMENT).status_code in (302, 403, 404)
