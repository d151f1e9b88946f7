"""The MySQL and MariaDB store of Hesape."""
