"""Tables in SQLite and PostgreSQL, through the Arrow drivers of ADBC: read by a query, predictions written back.

A password in a URL is passed only to the driver: it is removed from the URL before that is shown or stored.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa

from gpatcher.errors import InputError, some

SQLITE, POSTGRESQL = "sqlite", "postgresql"
_SCHEMES = {"sqlite": SQLITE, "postgresql": POSTGRESQL, "postgres": POSTGRESQL}
_FILES = (".db", ".sqlite", ".sqlite3")
_FORMS = "sqlite:///file.db, a path that ends in .db or .sqlite, or postgresql://user@host/database"
_SECRET_OPTIONS = ("password", "sslpassword")  # of libpq, in the query part of a URL
_PASSWORD_ADVICE = "the password comes from PGPASSWORD, ~/.pgpass or the URL"
_QUERY = re.compile(r"\s*(--|/\*|\(?\s*select[\s*('\"]\s*\S|with\s.*\bas\b)", re.IGNORECASE | re.DOTALL)
_BUSY_MILLISECONDS = 10_000  # to wait for another program that writes to an SQLite file
_SQLITE_ROWS = 1 << 20  # per batch; the driver infers the type of each column from the first batch
_READ_ONLY = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"
_SAME_ORDER = "SET LOCAL synchronize_seqscans = off"  # else a scan may start in the middle, with another one
_LONGEST_NAME = 63  # bytes; PostgreSQL truncates longer names
_MISMATCH = re.compile(r"Type mismatch in column (\d+): expected (\w+) but got (\w+)")
# types of PostgreSQL that the driver maps to Arrow types that columns can be read from; others are cast to text
_NATIVE = frozenset(
    ("bool", "bytea", "date", "float4", "float8", "int2", "int4", "int8", "text", "timestamp", "timestamptz", "varchar")
)


def is_query(text: str) -> bool:
    """Whether a text is a query, not the name of a table.

    Examples
    --------
    >>> is_query("SELECT id FROM people"), is_query("people"), is_query("select")
    (True, False, False)
    """
    return _QUERY.match(text) is not None


def quoted(name: str) -> str:
    """Return a SQL identifier in quotes, so that no part of it is interpreted as SQL.

    Examples
    --------
    >>> quoted('people"; DROP TABLE people; --')
    '"people""; DROP TABLE people; --"'
    """
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True, eq=False, repr=False)
class Database:
    """The location of a database; ``str`` gives its URL without the password."""

    kind: str  # SQLITE or POSTGRESQL
    url: str  # without the password
    path: Path = Path()  # of the SQLite file
    _full: str = ""  # the URL with the password, for the driver of PostgreSQL
    _secrets: tuple[str, ...] = ()

    @classmethod
    def parse(cls, url: str | Database) -> Database:
        """Return the database of a URL, or of the path of an SQLite file; nothing is opened."""
        if isinstance(url, Database):
            return url
        if not isinstance(url, str | Path):
            raise InputError(f"database must be a URL, got {type(url).__name__}; use {_FORMS}")
        text = str(url).strip()
        scheme, separator, rest = text.partition("://")
        kind = _SCHEMES.get(scheme.lower()) if separator else SQLITE if text.lower().endswith(_FILES) else None
        if kind is None:  # not shown in full: it may contain a password
            shown = f"a URL that begins with {scheme}://" if separator else "neither a URL nor such a path"
            raise InputError(f"the database must be {_FORMS}; got {shown}")
        return cls._sqlite(rest if separator else f"/{text}") if kind == SQLITE else cls._postgresql(rest, text)

    @classmethod
    def _sqlite(cls, rest: str) -> Database:
        if not rest.startswith("/") or rest == "/":
            raise InputError(
                f"sqlite://{rest} names no file; write sqlite:///file.db, or sqlite:////folder/file.db from the root"
            )
        path = Path(rest[1:]).absolute()
        return cls(SQLITE, f"sqlite:///{path}", path)

    @classmethod
    def _postgresql(cls, rest: str, full: str) -> Database:
        credentials, at, place = rest.rpartition("@")
        if re.search(r"[/?#@\s]|%(?![0-9A-Fa-f]{2})", credentials):
            raise InputError(
                "the user or the password in the URL holds a character that must be written as %XX, such as %40 for @, "
                "%2F for / and %25 for %; or leave the password out and set PGPASSWORD"
            )
        user, _, password = credentials.partition(":")
        server, question, query = place.partition("?")
        secret, kept = [password], []
        for part in query.split("&"):
            name, _, value = part.partition("=")
            if unquote(name).lower() in _SECRET_OPTIONS:
                secret.append(value)
            else:
                kept.append(part)
        shown = f"postgresql://{user}{at}{server}" + (f"?{'&'.join(kept)}" if question and any(kept) else "")
        secrets = {text for value in secret for text in (value, unquote(value)) if text}
        return cls(POSTGRESQL, shown, _full=full, _secrets=tuple(sorted(secrets, key=len, reverse=True)))

    def __str__(self) -> str:
        return self.url

    def __repr__(self) -> str:
        return f"Database({self.url!r})"

    @contextmanager
    def connect(self, *, write: bool = False) -> Iterator[Any]:
        """Yield a driver connection with a transaction, which is rolled back unless committed."""
        manager, driver = self._import()
        target = self._full
        if self.kind == SQLITE:
            if not self.path.is_file() and not write:
                raise InputError(
                    f"there is no file {self.path}; check the path, which begins with / after sqlite:/// (four slashes)"
                )
            if not self.path.parent.is_dir():
                raise InputError(f"{self.path.parent} is not a folder; create it or choose another")
            target = f"file:{quote(str(self.path))}?mode={'rwc' if write else 'ro'}"
        try:
            connection = driver.connect(target)
        except manager.Error as error:
            advice = f"check the address, and that the server runs; {_PASSWORD_ADVICE}"
            raise InputError(f"cannot connect to {self}: {self._reason(error)}; {advice}") from None
        try:
            if self.kind == SQLITE:
                with connection.cursor() as cursor, self.errors("it"):
                    cursor.execute(f"PRAGMA busy_timeout = {_BUSY_MILLISECONDS}")
            yield connection
        finally:
            connection.close()

    def _import(self) -> tuple[Any, Any]:
        try:
            return import_module("adbc_driver_manager"), import_module(f"adbc_driver_{self.kind}.dbapi")
        except ImportError as error:
            raise InputError(
                f"databases need the package {error.name}; install it with: pip install 'gpatcher[database]'"
            ) from None

    @contextmanager
    def errors(self, what: str, advice: str = "correct the SQL") -> Iterator[None]:
        """Convert driver errors to an InputError with a single line, without the password."""
        manager, _ = self._import()
        try:
            yield
        except (manager.Error, pa.ArrowException, OSError) as error:
            raise InputError(f"{self}: {what} failed: {self._reason(error)}; {advice}") from None

    def _reason(self, error: Exception) -> str:
        """Return the line of a driver's error that says what is wrong, without its codes and the password."""
        text = re.split(r"(?:ERROR|FATAL): +", str(error))[-1].strip()
        line = re.sub(r"^(?:[A-Z_]+: )?(?:\[\w+\] )?", "", next(iter(text.splitlines()), type(error).__name__))
        for secret in self._secrets:
            line = line.replace(secret, "***")
        return line.rstrip(". ")

    @contextmanager
    def reading(self) -> Iterator[Reader]:
        """Yield a reader whose queries all see the same snapshot of the database."""
        with ExitStack() as stack:
            connection = stack.enter_context(self.connect())
            snapshot = None
            if self.kind == POSTGRESQL:
                with connection.cursor() as cursor, self.errors("a snapshot", "check the rights of the user"):
                    cursor.execute(_READ_ONLY)
                    cursor.execute(_SAME_ORDER)
                    cursor.execute("SELECT pg_export_snapshot()")
                    snapshot = cursor.fetchone()[0]
                    cursor.execute("SAVEPOINT before_reading")  # an error after it does not end the snapshot
            yield Reader(self, connection, snapshot, [connection], stack)

    def parts(self, name: str) -> tuple[str | None, str]:
        """Return schema and table of a name; an SQLite name has no schema and may contain dots."""
        schema, dot, table = name.partition(".")
        if not dot or self.kind == SQLITE:
            return None, name
        return schema, table

    def quoted(self, name: str) -> str:
        """Return the name of a table with schema and table quoted."""
        return ".".join(quoted(part) for part in self.parts(name) if part is not None)

    def has_table(self, cursor: Any, name: str) -> bool:
        """Whether there is a table or a view of this name."""
        if self.kind == SQLITE:  # names are case-insensitive
            return name.lower() in (table.lower() for table in self.tables(cursor))
        with self.errors(f"looking up table {name!r}", "check the name"):
            cursor.execute("SELECT to_regclass($1)::text", (self.quoted(name),))
            return cursor.fetchone()[0] is not None

    def tables(self, cursor: Any) -> list[str]:
        """Return the names of the tables and views that need no schema."""
        query = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY name"
        if self.kind == POSTGRESQL:
            query = (
                "SELECT relname::text FROM pg_class WHERE relkind IN ('r', 'v', 'm', 'p', 'f') AND "
                "pg_table_is_visible(oid) AND relnamespace <> 'pg_catalog'::regnamespace ORDER BY relname"
            )
        with self.errors("listing the tables", "check that the file is a database, and the rights of the user"):
            cursor.execute(query)
            return [row[0] for row in cursor.fetchall()]


@dataclass(frozen=True, eq=False, repr=False)
class Reader:
    """Reads queries in one transaction of SQLite, or with one snapshot of PostgreSQL."""

    database: Database
    connection: Any
    snapshot: str | None  # of PostgreSQL, where concurrent queries use separate connections
    idle: list[Any]  # unused PostgreSQL connections with that snapshot
    stack: ExitStack  # closes them

    def query(self, source: Any, name: str) -> Query:
        """Look up the columns of a query or a table; messages call a query "the query of ``name``"."""
        if not isinstance(source, str):
            got = type(source).__name__
            raise InputError(f"with database=..., {name} must be the name of a table or a SELECT, got {got}")
        text = source.strip()
        if is_query(text):
            text, table, shown = text.rstrip("; \n\t"), None, f"the query of {name}"
            rows = f"({text}\n)"
        else:
            self._require_table(text)
            table, shown, rows = text, text, self.database.quoted(text)
            text = f"SELECT * FROM {rows}"
        # not as a subquery, in which SQLite would rename columns of the same name
        describe = text if self.database.kind == SQLITE else f"SELECT * FROM {rows} AS described LIMIT 0"
        with self.stream(describe, shown, 1) as batches:
            schema = batches.schema
        return Query(self, shown, table, rows, schema)

    def _require_table(self, name: str) -> None:
        with self._lend() as connection, connection.cursor() as cursor:
            if self.database.has_table(cursor, name):
                return
            names = self.database.tables(cursor)
        lower = {table.lower(): table for table in names}
        close = difflib.get_close_matches(name.lower(), lower, n=1)
        hint = f"did you mean {lower[close[0]]!r}? The" if close else "the"
        raise InputError(f"{self.database} has no table {name!r}; {hint} tables are: {some(names) or 'none'}")

    @contextmanager
    def _lend(self) -> Iterator[Any]:
        """Yield a connection that is not in use; one with unread rows is not used again."""
        if self.snapshot is None:  # an SQLite connection serves several queries at once
            yield self.connection
            return
        try:
            connection = self.idle.pop()
        except IndexError:
            connection = self.stack.enter_context(self.database.connect())
            with connection.cursor() as cursor, self.database.errors("a snapshot", "run it again"):
                cursor.execute(_READ_ONLY)
                cursor.execute(f"SET TRANSACTION SNAPSHOT '{self.snapshot}'")
                cursor.execute(_SAME_ORDER)
        try:
            yield connection
        except BaseException:
            if connection is not self.connection:  # which holds the snapshot
                connection.close()
            raise
        self.idle.append(connection)

    @contextmanager
    def stream(self, sql: str, what: str, rows: int) -> Iterator[Any]:
        """Yield the batches of a query as the driver fetches them; for SQLite, ``rows`` per batch."""
        options = {"adbc.sqlite.query.batch_rows": str(rows)} if self.database.kind == SQLITE else {}
        with self._lend() as connection, connection.cursor(adbc_stmt_kwargs=options) as cursor:
            with self.database.errors(what):
                cursor.execute(sql)
                batches = cursor.fetch_record_batch()
            yield batches


@dataclass(frozen=True, eq=False)
class Query:
    """A query or a table whose columns are known and whose rows have not been read."""

    reader: Reader
    shown: str  # its name in messages
    table: str | None  # its name; None for a query
    rows: str = field(repr=False)  # SQL for the FROM clause
    schema: Any = field(repr=False)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self.schema.names)

    def batches(self, columns: Sequence[str], written: Sequence[str], size: int) -> Iterator[Any]:
        """Yield tables of these columns with at least ``size`` rows, except the last.

        PostgreSQL's type numeric becomes float64. In the ids and labels, ``written``, it becomes decimals: of the
        declared scale, or whole numbers if all are whole; else text. Types without an Arrow equivalent become text.
        """
        expressions = ", ".join(self._expression(name, written) for name in columns)
        waiting: list[Any] = []
        rows = 0
        sql = f"SELECT {expressions} FROM {self.rows} AS selected"
        with self.reader.stream(sql, self.shown, _SQLITE_ROWS) as stream:
            schema = stream.schema
            with self._errors(columns):
                for batch in stream:
                    waiting.append(batch)
                    rows += batch.num_rows
                    if rows >= size:
                        yield self._table(waiting, written)
                        waiting, rows = [], 0
        yield self._table(waiting or [pa.RecordBatch.from_pylist([], schema)], written)

    def _expression(self, name: str, written: Sequence[str]) -> str:
        """Return the SQL expression of a column, with a cast if the driver has no Arrow type for it."""
        kind = self._type(name)
        if kind is None or kind in _NATIVE or kind.startswith("_"):
            return quoted(name)
        cast = "float8" if kind == "numeric" and name not in written else "text"
        return f"{quoted(name)}::{cast} AS {quoted(name)}"

    def _type(self, name: str) -> str | None:
        """Return the type of a column in PostgreSQL."""
        metadata = self.schema.field(name).metadata or {}
        kind = metadata.get(b"POSTGRESQL:type", b"").decode()
        return kind or None

    def _table(self, batches: list[Any], written: Sequence[str]) -> Any:
        table = pa.Table.from_batches(batches)
        for name in written:
            if name in table.column_names and self._type(name) == "numeric":
                modifier = int(self.schema.field(name).metadata.get(b"POSTGRESQL:typmod", b"-1"))
                values = _decimals(table.column(name), modifier)
                table = table.set_column(table.column_names.index(name), name, values)
        return table

    @contextmanager
    def _errors(self, columns: Sequence[str]) -> Iterator[None]:
        """Convert errors while rows are fetched to an InputError."""
        advice = "correct the SQL, or run it again where the connection was lost"
        with self.reader.database.errors(self.shown, advice):
            try:
                yield
            except OSError as error:
                found = _MISMATCH.search(str(error))
                if found is None:
                    raise
                name, first, later = columns[int(found[1])], found[2], found[3]
                raise InputError(
                    f"{self.shown}: column {name!r} holds {first} or nothing in the first {_SQLITE_ROWS:,} rows and "
                    f"{later} after them; CAST it to one type in a SELECT, with ORDER BY {quoted(name)} IS NULL"
                ) from None


def _decimals(values: Any, modifier: int) -> Any:
    """Return numbers in text form as decimals of the declared scale, else of scale 0; unchanged if that fails."""
    precision, scale = (modifier - 4) >> 16, (modifier - 4) & 0x7FF
    declared = modifier >= 4 and precision <= 38 and scale <= precision
    try:
        return values.cast(pa.decimal128(precision, scale) if declared else pa.decimal128(38, 0))
    except pa.ArrowInvalid:  # a fraction, NaN or infinite
        return values


@dataclass(frozen=True, eq=False)
class TargetTable:
    """A database table to write to."""

    database: Database
    name: str
    overwrite: bool = False

    def __str__(self) -> str:
        return f"table {self.name!r} of {self.database}"

    def check(self) -> None:
        """Raise an InputError if `write` would: the table is created in a transaction that is rolled back."""
        self._check_name("table", self.name)
        with self._cursor() as (_, cursor):
            self._make_room(cursor)
            with self._errors():
                cursor.execute(f"CREATE TABLE {self.database.quoted(self.name)} (id INTEGER)")

    def write(self, pieces: Iterable[Mapping[str, Any]]) -> None:
        """Write columns that come in chunks of rows, in one transaction."""
        schema, name = self.database.parts(self.name)
        with self._cursor() as (connection, cursor):
            self._make_room(cursor)
            mode = "create"
            for piece in pieces:
                for column in piece:
                    self._check_name("column", column)
                table = self._writable(pa.table(dict(piece)))
                with self._errors():
                    cursor.adbc_ingest(name, table, mode=mode, db_schema_name=schema)
                mode = "append"
            with self._errors():
                connection.commit()

    @contextmanager
    def _cursor(self) -> Iterator[tuple[Any, Any]]:
        with self.database.connect(write=True) as connection, connection.cursor() as cursor:
            yield connection, cursor

    def _make_room(self, cursor: Any) -> None:
        """Drop an existing table if it may be replaced, else raise an error."""
        if not self.database.has_table(cursor, self.name):
            return
        if not self.overwrite:
            raise InputError(
                f"{self.database} has a table {self.name!r} already; choose another name with --to-table, or pass "
                "--overwrite to replace it"
            )
        with self._errors():
            cursor.execute(f"DROP TABLE {self.database.quoted(self.name)}")

    def _errors(self) -> Any:
        advice = "nothing was written; choose another table or database, or ask for the right to write there"
        return self.database.errors(f"writing to table {self.name!r}", advice)

    def _check_name(self, what: str, name: str) -> None:
        parts = self.database.parts(name) if what == "table" else (name,)
        if not all(part for part in parts if part is not None):
            raise InputError(f"{name!r} is not the name of a {what}; write one such as predictions")
        long = [part for part in parts if part is not None and len(part.encode()) > _LONGEST_NAME]
        if long and self.database.kind == POSTGRESQL:
            raise InputError(
                f"the name of the {what} {long[0]!r} has more than the {_LONGEST_NAME} bytes that PostgreSQL keeps; "
                f"{'choose a shorter one' if what == 'table' else 'write a file with --out instead'}"
            )

    def _writable(self, table: Any) -> Any:
        """Return decimals as text for SQLite, which has no decimal type."""
        if self.database.kind == POSTGRESQL:
            return table
        fields = [pa.field(f.name, pa.string()) if pa.types.is_decimal(f.type) else f for f in table.schema]
        return table.cast(pa.schema(fields))
