"""The binary log of MySQL and MariaDB as a change log."""

from truecopy.stream.binlog.log import open_log

__all__ = ["open_log"]
