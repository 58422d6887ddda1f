"""Read XML files of robots within limits, and mend what other readers of robots overlook."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from lxml import etree  # pyright: ignore[reportAttributeAccessIssue]

from pullback.core.errors import DescriptionError, hint
from pullback.core.files import check_limit, check_regular, read_plain

DECLARATION = re.compile(rb"<\?xml\b[^>]{0,200}\?>")
ENCODING = re.compile(rb"encoding\s*=\s*[\"']([\w.-]{1,40})")
PREFIX = re.compile(rb"[<\s/]([A-Za-z_][\w.-]{0,60}):[A-Za-z_]")
BOUND = re.compile(rb"xmlns:([A-Za-z_][\w.-]{0,60})")


def check_file(path: Path) -> None:
    """Raise a DescriptionError, which names the close file names, if `path` is not a plain file."""
    if path.is_file():
        return
    if path.is_dir():
        raise DescriptionError(f"{str(path)!r} is a folder; give the path of a .urdf or .xml file in it")
    if not path.parent.is_dir():
        raise DescriptionError(f"no file {str(path)!r}: the folder {str(path.parent)!r} does not exist; check the path")
    if path.exists():
        check_regular(path, DescriptionError)
    names = sorted(entry.name for entry in path.parent.iterdir() if entry.is_file())
    close = hint(path.name, names, 0.6)
    raise DescriptionError(
        f"no file {str(path)!r}; {close if close.startswith('did') else 'no file there has a similar name'}"
    )


def parse_xml(
    path: Path, notes: list[str] | None = None, *, keep_comments: bool = False, text: bytes | None = None
) -> Any:
    """Return the root element of an XML file, without comments unless asked.

    A robot's file whose XML is not well-formed in a way that is clear, such as `version="0.0"`, is read all the same:
    what was mended is added to `notes`. `text` is read in the place of the file, if it is given.
    """
    check_file(path)
    raw = read_plain(path, "description_bytes", DescriptionError) if text is None else text
    check_limit("description_elements", raw.count(b"<"), f"{path.name} has, by its '<',", DescriptionError)
    try:
        return _parse(raw, keep_comments)
    except etree.XMLSyntaxError as error:
        mended, mends = mend(raw)
        try:
            root = _parse(mended, keep_comments) if mends else None
        except etree.XMLSyntaxError:
            root = None
        if root is None:
            reason = error.msg.split(", line")[0]
            raise DescriptionError(
                f"{path.name}, line {error.lineno}: not well-formed XML: {reason}; mend it"
            ) from error
        if notes is not None:
            notes += [f"{path.name}: {text}" for text in mends]
        return root


def mend(raw: bytes) -> tuple[bytes, list[str]]:
    """Return the text of a robot's file as well-formed XML as far as its faults are common ones, and what they were.

    Lines keep their numbers.
    """
    mends = []
    declaration = DECLARATION.search(raw)
    if declaration:
        # XML allows it at the very start, and versions 1.x
        found = ENCODING.search(declaration[0])
        encoding = b' encoding="' + found[1] + b'"' if found else b""
        rest = raw[: declaration.start()].lstrip(b"\xef\xbb\xbf") + raw[declaration.end() :]
        standard = b'<?xml version="1.0"' + encoding + b"?>"
        if declaration.start() > 0:
            mends.append("the XML declaration comes after other text; it is read as if it came first")
        if not re.search(rb"version\s*=\s*[\"']1\.", declaration[0]):
            mends.append(f"{declaration[0].decode('ascii', 'replace')} is read as version 1.0")
        raw = standard + rest
    end = raw.rfind(b"</robot>")
    if end >= 0 and raw[end + 8 :].strip():
        mends.append(f"{len(raw) - end - 8} bytes after </robot> are left out")
        raw = raw[: end + 8]
    unbound = {*PREFIX.findall(raw)} - {*BOUND.findall(raw)} - {b"xml", b"xmlns"}
    start = raw.find(b"<robot")
    if unbound and start >= 0:
        names = sorted(unbound)
        mends.append(f"namespace prefixes without a declaration are allowed: {b', '.join(names).decode()}")
        declared = b"".join(b' xmlns:%s="undeclared:%s"' % (name, name) for name in names)
        raw = raw[: start + 6] + declared + raw[start + 6 :]
    return raw, mends


def _parse(raw: bytes, keep_comments: bool) -> Any:
    drop = not keep_comments
    parser = etree.XMLParser(remove_comments=drop, remove_pis=drop, resolve_entities=False, no_network=True)
    return etree.fromstring(raw, parser)
