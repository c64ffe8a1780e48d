"""Schema registry settings, as Kafka's users know them: compatibility levels and modes.

The level of a subject holds for Pulsar's clients too (`cluster/topic_schemas.py`).
"""

from typing import Any

import msgspec

from anabranch.admin.call import Call
from anabranch.admin.errors import Refused
from anabranch.admin.registry_call import (
    RegistrySchema,
    entry,
    posted,
    schemas_of,
    subject_of,
    version_of,
)
from anabranch.cluster.topic_schemas import LENIENT
from anabranch.schemas.documents import SettingsDocument
from anabranch.schemas.errors import InvalidSchema, LevelNotSet, ModeNotSet, NotPermitted, SubjectNotFound
from anabranch.schemas.modes import IMPORT, READWRITE, mode_in_scope, mode_of_name
from anabranch.schemas.strategy import DEFAULT_FOR_KAFKA, strategy_of_level
from anabranch.schemas.subject_registry import check_subject
from anabranch.schemas.subject_store import FOR_ALL

_POLICIES = ("STRICT", LENIENT)
_CONFIG, _MODE = "/config/{subject}", "/mode/{subject}"
_CHECK = "/compatibility/subjects/{subject}/versions"
_CHECKED = ("normalize", "verbose")


class RegistryConfig(msgspec.Struct, rename="camel"):
    """What is set; under `compatibility` it is asked for, under `compatibilityLevel` it is told."""

    compatibility: str | None = None
    compatibility_level: str | None = None
    normalize: bool | None = None
    alias: str | None = None
    compatibility_group: str | None = None
    compatibility_policy: str | None = None
    default_metadata: Any = None
    override_metadata: Any = None
    default_rule_set: Any = None
    override_rule_set: Any = None
    validate_fields: bool | None = None


class RegistryMode(msgspec.Struct):
    mode: str | None = None


class Compatible(msgspec.Struct):
    is_compatible: bool
    messages: list[str] | None = None


def _named(call: Call) -> str:
    """The subject that the path names, as it is: settings are made for names."""
    subject = call.path["subject"]
    check_subject(subject)
    return FOR_ALL if subject in (":.:", ":*:") else subject


# --- levels


def _told(settings: SettingsDocument, level: str | None) -> RegistryConfig:
    return RegistryConfig(
        compatibility_level=level,
        normalize=settings.normalize,
        alias=settings.alias,
        compatibility_group=settings.group,
        compatibility_policy=settings.policy,
    )


@entry("GET", "/config", answer=RegistryConfig, query=("defaultToGlobal",))
async def config(call: Call) -> RegistryConfig:
    """What holds for subjects that say nothing else."""
    return await _of_all(call)


async def _of_all(call: Call) -> RegistryConfig:
    settings = await schemas_of(call).store.settings(FOR_ALL)
    return _told(settings, settings.level or DEFAULT_FOR_KAFKA.level)


@entry("GET", _CONFIG, answer=RegistryConfig, query=("defaultToGlobal",))
async def config_of(call: Call) -> RegistryConfig:
    """What is set for a subject; if asked for, what holds for it though it is not."""
    subject = _named(call)
    if subject == FOR_ALL:
        return await _of_all(call)
    schemas = schemas_of(call)
    if call.flag("defaultToGlobal"):
        strategy = (await schemas.rules(subject)).strategy
        return _told(await schemas.store.settings_in_scope(subject), strategy.level)
    settings = await schemas.store.settings(subject)
    if not settings.has_config:
        raise LevelNotSet(f"Subject '{subject}' does not have subject-level compatibility configured")
    return _told(settings, settings.level)


@entry("PUT", "/config", body=RegistryConfig, answer=RegistryConfig)
async def set_config(call: Call) -> RegistryConfig:
    """Set what holds for subjects that say nothing else."""
    return await _set(call, FOR_ALL)


@entry("PUT", _CONFIG, body=RegistryConfig, answer=RegistryConfig)
async def set_config_of(call: Call) -> RegistryConfig:
    """Set what holds for a subject."""
    return await _set(call, _named(call))


async def _set(call: Call, subject: str) -> RegistryConfig:
    told: RegistryConfig = call.body or RegistryConfig()
    for name in ("default_metadata", "override_metadata", "default_rule_set", "override_rule_set"):
        if getattr(told, name):
            raise Refused(422, f"{name} is nothing that this registry keeps for whole subjects")
    if told.validate_fields:
        raise Refused(422, "this registry knows no reserved fields to validate")
    policy = told.compatibility_policy
    if policy is not None and policy.upper() not in _POLICIES:
        raise Refused(422, f"{policy[:100]!r} is no policy; there are {', '.join(_POLICIES)}")
    level = told.compatibility or told.compatibility_level
    changes = {
        "level": level and strategy_of_level(level).level,
        "normalize": told.normalize,
        "alias": told.alias,
        "group": told.compatibility_group,
        "policy": policy and policy.upper(),
    }
    await schemas_of(call).store.set(
        subject, **{name: value for name, value in changes.items() if value is not None}
    )
    return told


@entry("DELETE", "/config", answer=RegistryConfig)
async def remove_config(call: Call) -> RegistryConfig:
    """Let the default hold for subjects that say nothing else."""
    return await _unset(call, FOR_ALL, await _of_all(call))


@entry("DELETE", _CONFIG, answer=RegistryConfig)
async def remove_config_of(call: Call) -> RegistryConfig:
    """Let what holds for all hold for a subject."""
    subject = _named(call)
    settings = await schemas_of(call).store.settings(subject)
    if not settings.has_config:
        raise SubjectNotFound(f"Subject '{subject}' not found.")
    return await _unset(call, subject, _told(settings, settings.level))


async def _unset(call: Call, subject: str, before: RegistryConfig) -> RegistryConfig:
    await schemas_of(call).store.set(subject, level=None, normalize=None, alias=None, group=None, policy=None)
    return before


# --- modes


@entry("GET", "/mode", answer=RegistryMode)
async def mode(call: Call) -> RegistryMode:
    """What may be done with subjects that say nothing else."""
    return await _mode_of_all(call)


async def _mode_of_all(call: Call) -> RegistryMode:
    return RegistryMode((await schemas_of(call).store.settings(FOR_ALL)).mode or READWRITE)


@entry("GET", _MODE, answer=RegistryMode, query=("defaultToGlobal",))
async def mode_of(call: Call) -> RegistryMode:
    """What is said of what may be done with a subject; if asked for, what holds though nothing is."""
    subject, store = _named(call), schemas_of(call).store
    if subject == FOR_ALL:
        return await _mode_of_all(call)
    if call.flag("defaultToGlobal"):
        return RegistryMode(await mode_in_scope(store, subject))
    found = (await store.settings(subject)).mode
    if found is None:
        raise ModeNotSet(f"Subject '{subject}' does not have subject-level mode configured")
    return RegistryMode(found)


@entry("PUT", "/mode", body=RegistryMode, answer=RegistryMode, query=("force",))
async def set_mode(call: Call) -> RegistryMode:
    """Say what may be done with subjects that say nothing else."""
    return await _set_mode(call, FOR_ALL)


@entry("PUT", _MODE, body=RegistryMode, answer=RegistryMode, query=("force",))
async def set_mode_of(call: Call) -> RegistryMode:
    """Say what may be done with a subject."""
    return await _set_mode(call, _named(call))


async def _set_mode(call: Call, subject: str) -> RegistryMode:
    told: RegistryMode = call.body or RegistryMode()
    asked = mode_of_name(told.mode or "")
    schemas = schemas_of(call)
    before = await mode_in_scope(schemas.store, subject)
    if asked == IMPORT != before and not call.flag("force"):
        known = await schemas.lists.subjects("")
        if known and (subject == FOR_ALL or subject in known):
            raise NotPermitted("Cannot import since found existing subjects")
    await schemas.store.set(subject, mode=asked)
    return RegistryMode(asked)


@entry("DELETE", "/mode", answer=RegistryMode)
async def remove_mode(call: Call) -> RegistryMode:
    """Let everything be done with subjects that say nothing else."""
    before = await _mode_of_all(call)
    await schemas_of(call).store.set(FOR_ALL, mode=None)
    return before


@entry("DELETE", _MODE, answer=RegistryMode)
async def remove_mode_of(call: Call) -> RegistryMode:
    """Let what holds for all hold for a subject."""
    subject, store = _named(call), schemas_of(call).store
    before = (await store.settings(subject)).mode
    if before is None:
        raise SubjectNotFound(f"Subject '{subject}' not found.")
    await store.set(subject, mode=None)
    return RegistryMode(before)


# --- whether one may follow


@entry("POST", _CHECK, body=RegistrySchema, answer=Compatible, query=_CHECKED)
async def check(call: Call) -> Compatible:
    """Whether a schema could be registered."""
    return await _check(call, None)


@entry("POST", f"{_CHECK}/{{version}}", body=RegistrySchema, answer=Compatible, query=_CHECKED)
async def check_version(call: Call) -> Compatible:
    """Whether a schema could follow one version."""
    return await _check(call, version_of(call))


async def _check(call: Call, version: int | None) -> Compatible:
    schemas, subject, is_verbose = schemas_of(call), await subject_of(call), call.flag("verbose")
    rules = await schemas.rules(subject, normalize=call.flag("normalize"))
    try:
        told = await schemas.subjects.why_not(subject, posted(call), rules, version)
    except InvalidSchema as error:
        if not is_verbose:
            raise
        told = [str(error)]
    return Compatible(not told, told if is_verbose else None)
