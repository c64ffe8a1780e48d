"""`anabranch tenant`: who has namespaces here."""

from typing import Annotated, Any
from urllib.parse import quote_plus

import typer

from anabranch.cli.http import DEFAULT_HTTP, Http, ask
from anabranch.cli.options import Json
from anabranch.cli.output import print_json, print_table

app = typer.Typer(help="Make, look at, change and remove tenants.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="TENANT", help="The tenant.")]
Roles = Annotated[
    list[str] | None,
    typer.Option("--admin-role", metavar="ROLE", help="Who may administer it; repeatable."),
]
Clusters = Annotated[
    list[str] | None,
    typer.Option("--allowed-cluster", metavar="CLUSTER", help="Where it may be; repeatable. All, if none."),
]


def _path(name: str) -> str:
    return f"/tenants/{quote_plus(name)}"


def _info(http: str, roles: list[str] | None, clusters: list[str] | None) -> dict[str, Any]:
    return {"adminRoles": roles or [], "allowedClusters": clusters or ask(http, "GET", "/clusters")}


@app.command("list")
def list_(as_json: Json = False, http: Http = DEFAULT_HTTP) -> None:
    """List tenants."""
    names = ask(http, "GET", "/tenants")
    if as_json:
        print_json(names)
        return
    for name in names:
        print(name)


@app.command("show")
def show(name: Name, as_json: Json = False, http: Http = DEFAULT_HTTP) -> None:
    """Show a tenant: who may administer it, where it may be, its namespaces."""
    info = ask(http, "GET", _path(name))
    namespaces = ask(http, "GET", f"/namespaces/{quote_plus(name)}")
    if as_json:
        print_json({"name": name, **info, "namespaces": namespaces})
        return
    print_table(
        [
            {
                "tenant": name,
                "admin roles": info["adminRoles"] or None,
                "clusters": info["allowedClusters"],
                "namespaces": namespaces or None,
            }
        ]
    )


@app.command("create")
def create(name: Name, roles: Roles = None, clusters: Clusters = None, http: Http = DEFAULT_HTTP) -> None:
    """Make a tenant."""
    ask(http, "PUT", _path(name), _info(http, roles, clusters))
    print(f"created {name}")


@app.command("update")
def update(name: Name, roles: Roles = None, clusters: Clusters = None, http: Http = DEFAULT_HTTP) -> None:
    """Say anew who may administer a tenant, and where it may be."""
    ask(http, "POST", _path(name), _info(http, roles, clusters))
    print(f"updated {name}")


@app.command("delete")
def delete(
    name: Name,
    force: Annotated[bool, typer.Option("--force", help="With all its namespaces and topics.")] = False,
    http: Http = DEFAULT_HTTP,
) -> None:
    """Remove a tenant."""
    ask(http, "DELETE", _path(name), query={"force": str(force).lower()})
    print(f"deleted {name}")
