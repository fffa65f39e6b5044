"""Text of the binary log, which is in the column's character set, as UTF-8.

Python's codecs, with what the servers do otherwise written down: their own tables were compared with
each codec, character by character. What has no character in Unicode is refused, as by the SQL of the
engine: the servers would give a question mark for it.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable

UTF8 = frozenset({"utf8", "utf8mb3", "utf8mb4", "ascii"})
"""Character sets whose text needs no conversion."""


def to_utf8(charset: str) -> Callable[[bytes], bytes] | None:
    """A function from text in the character set to UTF-8; None when there is no exact one.

    It raises `UnicodeDecodeError` for bytes that are no character, or none that Unicode has.
    """
    if charset in _SINGLE_BYTE:
        return _single_byte(charset)
    if charset in _WALKED:
        return _walker(charset)
    if charset not in _MULTI_BYTE:
        return None
    codec, moved = _MULTI_BYTE[charset]
    decode = codecs.getdecoder(codec)
    if moved:
        table = str.maketrans(moved)
        return lambda raw: decode(raw, "strict")[0].translate(table).encode()
    return lambda raw: decode(raw, "strict")[0].encode()


def is_ascii_based(charset: str) -> bool:
    """Whether text of ASCII's bytes only is ASCII, and can be left as it is."""
    return charset in _ASCII_BASED


_NOTHING = "\ufffe"  # what a table of Python's has where there is no character

# The codec, and the bytes that the servers read otherwise.
_SINGLE_BYTE: dict[str, tuple[str, dict[int, str]]] = {
    "armscii8": (
        "latin-1",
        dict(
            enumerate(
                "❁§\u0589)(»«—.\u055d,-՟…՜՛՞"
                + "".join(chr(0x531 + n) + chr(0x561 + n) for n in range(38))
                + "\u2019'",
                0xA1,
            )
        ),
    ),
    "cp1250": ("cp1250", {}),
    "cp1251": ("cp1251", {}),
    "cp1256": ("cp1256", dict.fromkeys((0x8A, 0x8F, 0x98, 0x9A, 0x9F, 0xAA, 0xC0, 0xFF), _NOTHING)),
    "cp1257": ("cp1257", {}),
    "cp850": ("cp850", {}),
    "cp852": ("cp852", {}),
    "cp866": ("cp866", {0xFC: "ⁿ", 0xFD: "²"}),
    "dec8": (
        "latin-1",
        {
            **dict.fromkeys(
                (0xA4, 0xA6, *range(0xAC, 0xB0), 0xB4, 0xB8, 0xBE, 0xD0, 0xDE), _NOTHING
            ),
            **dict.fromkeys((0xF0, 0xFE, 0xFF), _NOTHING),
            0xA8: "¤",
            0xD7: "Œ",
            0xDD: "Ÿ",
            0xF7: "œ",
            0xFD: "ÿ",
        },
    ),
    "geostd8": (
        "cp1252",
        {
            **dict.fromkeys((0x83, 0x88, 0x8A, 0x8C, 0x8E, *range(0x98, 0x9B), 0x9C), _NOTHING),
            **dict.fromkeys((0x9E, 0x9F, *range(0xE6, 0x100)), _NOTHING),
            **dict(enumerate("აბგდევზჱთიკლმნჲოპჟრსტჳუფქღყშჩცძწჭხჴჯჰჵ", 0xC0)),
            0xFD: "№",
        },
    ),
    "greek": (
        "iso8859-7",
        {0xA1: "\u02bd", 0xA2: "\u02bc", 0xA4: _NOTHING, 0xA5: _NOTHING, 0xAA: _NOTHING},
    ),
    "hebrew": ("iso8859-8", {0xAF: "‾"}),
    "hp8": ("hp-roman8", {}),
    "keybcs2": (
        "cp437",
        {
            **dict(enumerate("ČüéďäĎŤčěĚĹÍľĺÄÁÉžŽôöÓůÚýÖÜŠĽÝŘťáíóúňŇŮÔšřŕŔ", 0x80)),
            0xAD: "¡",
        },
    ),
    "koi8r": ("koi8-r", {}),
    "koi8u": ("koi8-u", {0x95: "•"}),
    # cp1252, with control characters where that has holes.
    "latin1": ("cp1252", {n: chr(n) for n in (0x81, 0x8D, 0x8F, 0x90, 0x9D)}),
    "latin2": ("iso8859-2", {}),
    "latin5": ("iso8859-9", {}),
    "latin7": ("iso8859-13", {}),
    "macce": ("mac-latin2", {}),
    "macroman": ("mac-roman", {}),
    "swe7": (
        "ascii",
        dict(zip(b"@[\\]^`{|}~\x7f", "ÉÄÖÅÜéäöåü\ufffe", strict=True)),
    ),
    "tis620": (
        "tis-620",
        dict.fromkeys((0xA0, *range(0xDB, 0xDF), *range(0xFC, 0x100)), "\ufffd"),
    ),
}

# The codec, and the characters that the servers read otherwise.
_MULTI_BYTE: dict[str, tuple[str, dict[str, str]]] = {
    "cp932": ("cp932", {}),
    "euckr": ("cp949", {}),
    "gb18030": ("gb18030", {"\ue7c7": "ḿ", "ḿ": "\ue7c7"}),
    "gb2312": ("gb2312", {}),
    "gbk": ("gbk", {}),
    "sjis": ("shift_jis", {"\uff3c": "\\"}),
    "ucs2": ("utf-16-be", {}),
    "utf16": ("utf-16-be", {}),
    "utf16le": ("utf-16-le", {}),
    "utf32": ("utf-32-be", {}),
}

# The codec, and the characters whose bytes the servers read otherwise; two of them may be one to the codec.
_WALKED: dict[str, tuple[str, dict[bytes, str]]] = {
    "big5": (
        "big5",
        {
            **dict.fromkeys((b"\xa1\x5a", b"\xa1\xc3", b"\xa1\xc5", b"\xa1\xfe"), "\ufffd"),
            **dict.fromkeys((b"\xa2\x40", b"\xa2\xcc", b"\xa2\xce"), "\ufffd"),
            **{bytes((0xF9, 0xD6 + n)): char for n, char in enumerate("碁銹裏墻恒粧嫺")},
        },
    ),
    "ujis": (
        "euc_jp",
        {
            b"\xa1\xc0": "\\",
            # The users' own rows lie in Unicode's private area, one after the other.
            **{
                lead + bytes((0xF5 + n // 94, 0xA1 + n % 94)): chr(first + n)
                for lead, first in ((b"", 0xE000), (b"\x8f", 0xE3AC))
                for n in range(940)
            },
        },
    ),
}
_NOT_ASCII_BASED = {"swe7", "ucs2", "utf16", "utf16le", "utf32"}
_ASCII_BASED = (_SINGLE_BYTE.keys() | _MULTI_BYTE.keys() | _WALKED.keys()) - _NOT_ASCII_BASED


def _single_byte(charset: str) -> Callable[[bytes], bytes]:
    codec, moved = _SINGLE_BYTE[charset]
    table = "".join(
        moved.get(n) or bytes([n]).decode(codec, "replace").replace("\ufffd", _NOTHING)
        for n in range(256)
    )
    decode = codecs.charmap_decode
    return lambda raw: decode(raw, "strict", table)[0].encode()


def _walker(charset: str) -> Callable[[bytes], bytes]:
    codec, moved = _WALKED[charset]
    long = 0x8F if charset == "ujis" else None

    def convert(raw: bytes) -> bytes:
        found = []
        at = 0
        while at < len(raw):
            first = raw[at]
            width = 1 if first < 0x80 else 3 if first == long else 2
            char = raw[at : at + width]
            found.append(moved.get(char) or char.decode(codec))
            at += width
        return "".join(found).encode()

    return convert
