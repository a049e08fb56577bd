"""Six hundred secrets as they stand in the texts of events, and honest texts that must stay as they are.

Each shape is a text with a hole for the secret. The secrets are made up, each of its own kind, by a generator
with a seed: they open nothing, and are the same every time.
"""

import base64
import string
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final, NamedTuple

import msgspec

from celeriac.model.events import Custom, Event, Extra, Failed, Sent, Succeeded

__all__ = ["HONEST", "SECRETS", "SHAPES", "Entry", "as_event", "leaked"]


class Entry(NamedTuple):
    """A text of an event with a secret in it, of which no six characters in a row may be left."""

    field: str
    text: str
    secret: str


def as_event(entry: Entry) -> Event:
    """Return an event that has the text of an entry in its field."""
    fields: dict[str, Any] = {
        "timestamp": 1.0, "clock": 2, "hostname": "celery@h", "local_received": 3.0, "uuid": "t1",
    }  # fmt: skip
    if entry.field == "rest":
        return Custom(**fields, subject="progress", extra=Extra(msgspec.json.decode(entry.text)))
    fields[entry.field] = entry.text
    if entry.field in ("args", "kwargs"):
        return Sent(**fields, name="shop.pay")
    return Succeeded(**fields) if entry.field == "result" else Failed(**fields)


def leaked(text: str, secret: str) -> str | None:
    """Return a part of the secret, six characters long, that is in a text."""
    parts = (secret[place : place + 6] for place in range(max(1, len(secret) - 5)))
    return next((part for part in parts if part in text), None)


_WORDS: Final = ("hunter", "Sommer", "blauwal", "tr0ub4dor", "kartoffel", "zebra", "Quark", "xyzzy")
_LETTERS: Final = string.ascii_letters + string.digits


def _chars(random: Random, size: int, alphabet: str = _LETTERS) -> str:
    return "".join(random.choices(alphabet, k=size))


def _plain(random: Random) -> str:
    return f"{random.choice(_WORDS)}{random.randrange(100, 10_000)}{random.choice(_WORDS)}"


def _odd(random: Random) -> str:
    """With marks that end other texts, but no quotes, spaces or backslashes."""
    one, other = random.choice("!$%^*+~|,"), random.choice("#?=&;:)")
    return f"{_plain(random)}{one}{_plain(random)}{other}{_chars(random, 8)}"


def _phrase(random: Random) -> str:
    return " ".join(random.choices(_WORDS, k=4)) + f" {random.randrange(1000)}"


def _number(random: Random) -> str:
    return str(random.randrange(10**7, 10**9))


def _hex(random: Random) -> str:
    return _chars(random, 32, "0123456789abcdef")


def _unicode(random: Random) -> str:
    return f"{random.choice(('geheim', 'öffne', 'пароль', '秘密'))}{_plain(random)}ß{random.randrange(99)}"


def _random(random: Random) -> str:
    """As keys are made: letters of both sizes and digits in turns."""
    kinds = (string.ascii_lowercase, string.digits, string.ascii_uppercase)
    return "".join(random.choice(kinds[place % 3]) for place in range(24))


def _jwt(random: Random) -> str:
    parts = [
        b'{"alg":"HS256","typ":"JWT"}',
        f'{{"sub":"{random.randrange(10**9)}"}}'.encode(),
        random.randbytes(32),
    ]
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)


def _basic(random: Random) -> str:
    return base64.b64encode(f"bob:{_plain(random)}".encode()).decode()


def _aws(random: Random) -> str:
    return "AKIA" + _chars(random, 16, string.ascii_uppercase + string.digits)


def _aws_secret(random: Random) -> str:
    return _chars(random, 40, _LETTERS + "/+")


def _pem_body(random: Random) -> str:
    return base64.b64encode(random.randbytes(96)).decode()


def _card(random: Random, start: str = "4", size: int = 16) -> str:
    digits = start + _chars(random, size - len(start) - 1, string.digits)
    for check in string.digits:
        doubled = [int(each) * (1 + place % 2) for place, each in enumerate(reversed(digits + check))]
        if sum(each - 9 if each > 9 else each for each in doubled) % 10 == 0:
            return digits + check
    raise AssertionError(digits)


def _spaced(mark: str) -> Callable[[Random], str]:
    def make(random: Random) -> str:
        card = _card(random, random.choice(("4", "51", "55", "2221", "6011")))
        return mark.join(card[place : place + 4] for place in range(0, 16, 4))

    return make


def _amex(random: Random) -> str:
    card = _card(random, random.choice(("34", "37")), 15)
    return f"{card[:4]} {card[4:10]} {card[10:]}"


def _token(start: str, size: int, alphabet: str = _LETTERS) -> Callable[[Random], str]:
    return lambda random: start + _chars(random, size, alphabet)


def _base64_key(random: Random) -> str:
    return base64.b64encode(random.randbytes(64)).decode()


_PEM: Final = "-----BEGIN RSA PRIVATE KEY-----{nl}MIIEpAIBAAKCAQEA{nl}@@{nl}-----END RSA PRIVATE KEY-----"
_TRACE: Final = 'Traceback (most recent call last):\n  File "/srv/app/db.py", line 31, in connect\n    '

Make = Callable[[Random], str]
#: The field, the text with @@ for the secret, and how that is made.
SHAPES: Final[tuple[tuple[str, str, Make], ...]] = (
    # -- reprs as Python prints them
    ("kwargs", "{'user': 'bob', 'password': '@@', 'age': 7}", _odd),
    ("kwargs", "{'password': '@@'}", _phrase),
    ("kwargs", "{'passwd': \"it's @@\", 'n': 1}", _phrase),
    ("kwargs", "{'passphrase': 'it\\'s \"@@\" so', 'n': 1}", _phrase),
    ("kwargs", "{'PASSWORD2': '@@', 'x': None}", _unicode),
    ("kwargs", "{'db_password': b'@@\\x00', 'x': None}", _odd),
    ("kwargs", "{'userToken': '@@', 'page': 2}", _hex),
    ("kwargs", "{'x-api-key': '@@'}", _hex),
    ("kwargs", "{'client_secret': '@@', 'scope': 'all'}", _odd),
    ("kwargs", "{'pin': @@, 'card': 'gold'}", _number),
    ("kwargs", "{'password': @@}", _number),
    ("kwargs", "{'otp_code': '@@', 'pw': 'x'}", _number),
    ("kwargs", "{'config': {'smtp': {'host': 'h', 'smtp_pass': '@@'}}}", _odd),
    ("kwargs", "{'credentials': {'user': 'bob', 'value': '@@', 'more': [1, 2]}, 'n': 3}", _odd),
    ("kwargs", "{'tokens': ['abc', '@@'], 'n': 3}", _plain),
    ("kwargs", "{'cookies': {'sid': '@@'}}", _hex),
    ("kwargs", "{'session': ('web', '@@'), 'n': 3}", _plain),
    ("kwargs", "{'private_key': '@@', 'public_key': 'ssh-rsa x'}", _base64_key),
    ("kwargs", "{'stripeKey': '@@'}", _plain),
    ("kwargs", "{'signing-key': '@@'}", _base64_key),
    ("kwargs", "{'auth': ('bob', '@@')}", _odd),
    ("kwargs", "{'secret': SecretStr('@@'), 'n': 1}", _odd),
    ("kwargs", "{'form': <QueryDict: {'password': ['@@'], 'next': ['/']}>}", _plain),
    ("kwargs", "{'ключ': 1, 'né': 'ü', 'password': '@@', 'ω': '…'}", _unicode),
    ("kwargs", "OrderedDict([('user', 'bob'), ('password', '@@')])", _odd),
    ("kwargs", "dict(user='bob', api_key='@@', n=1)", _hex),
    ("kwargs", "{'key': '@@'}", _token("", 32)),
    ("args", "(Account(name='bob', password='@@', active=True), 3)", _odd),
    ("args", "(Login(user='bob', token='@@'),)", _phrase),
    ("args", "(<User bob password=@@>, 3)", _plain),
    ("args", "(<Client token='@@' at 0x7f00>, 3)", _plain),
    ("args", "([('authorization', '@@'), ('host', 'x')],)", _plain),
    ("args", "([(b'cookie', b'sid=@@')],)", _hex),
    ("args", "(['mysql', '--password', '@@', '-h', 'db'],)", _odd),
    ("args", "(['mysql', '--password=@@', '-h', 'db'],)", _plain),
    ("args", "(['curl', '-u', 'bob:@@', 'https://x'],)", _plain),
    ("args", "('deploy --token @@ --force', 1)", _hex),
    ("args", "('PGPASSWORD=@@ psql -h db', 1)", _plain),
    ("args", "('<config><password>@@</password></config>',)", _plain),
    ("args", "([{'name': 'DB_PASSWORD', 'value': '@@'}, {'name': 'A', 'value': 'b'}],)", _plain),
    # -- JSON, in strings and in strings in strings
    ("args", '(\'{"user": "bob", "password": "@@", "n": 1}\',)', _odd),
    ("args", '(\'{"password": "a\\\\"b @@", "n": 1}\',)', _phrase),
    ("args", '("{\\"it\'s\\": 1, \\"token\\": \\"@@\\", \\"n\\": 1}",)', _phrase),
    ("args", '("{\\"body\\": \\"{\\\\\\"secret\\\\\\": \\\\\\"@@\\\\\\"}\\"}",)', _odd),
    ("args", "(b'{\"access_token\":\"@@\",\"expires_in\":3600}',)", _plain),
    ("result", '{"refresh_token":"@@","token_type":"x"}', _hex),
    ("result", "'{\"credentials\": {\"a\": [\"@@\"]}}'", _phrase),
    ("result", "{'sessionid': '@@', 'csrftoken': 'abc'}", _hex),
    ("result", "('ok', 'grant_type=password&username=bob&password=@@&scope=x')", _plain),
    ("result", "'user%5Bpassword%5D=@@&commit=1'", _plain),
    # -- cut
    ("kwargs", "{'password': '@@...', ...}", _plain),
    ("kwargs", "{'a': {'password': b'@@...'}}", _plain),
    ("kwargs", "{'config': {'token': '@@…[cut]", _hex),
    ("args", "('redis://bob:@@...', ...)", _plain),
    ("args", "('https://bob:@@...',)", _plain),
    ("args", "('amqp://:@@...", _number),
    ("args", "('eyJhbGciOiJIUzI1NiJ9.@@...', ...)", _token("eyJ", 30)),
    ("args", "('-----BEGIN PRIVATE KEY-----\\n@@...', ...)", _pem_body),
    ("args", "('@@...', 'x')", lambda random: _spaced(" ")(random)[:12]),
    ("args", "('@@...', 'x')", lambda random: _token("ghp_", 36)(random)[:22]),
    ("args", "('{\"password\": \"@@...', ...)", _phrase),
    # -- URLs
    ("args", "('redis://:@@@cache:6379/0',)", _plain),
    ("args", "('rediss://bob:@@@cache:6379/0?ssl_cert_reqs=none',)", _plain),
    ("args", "('amqp://bob:@@@rabbit:5672//',)", _plain),
    ("args", "('amqps://bob:@@@rabbit/vhost?heartbeat=3',)", _odd),
    ("args", "('sentinel://:@@@a:1;sentinel://:@@@b:2',)", _plain),
    ("args", "('redis://a:x1@h,redis://b:@@@h2',)", _plain),
    ("args", "('postgresql+psycopg://bob:@@@db.example:5432/shop',)", _odd),
    ("args", "('mysql://bob:@@@db/shop?charset=utf8',)", _plain),
    ("args", "('mongodb+srv://bob:@@@a.example,b.example/x?authSource=admin',)", _plain),
    ("args", "('sqs://@@:x@',)", _aws),
    ("args", "(\"redis://:a'@@@h/0\",)", _plain),
    ("args", "('redis://bob:p/@@@cache/0',)", _plain),
    ("exception", "ConnectionError('Error 111 connecting to redis://bob:@@@h:6379/0: refused')", _plain),
    ("exception", "OSError(\"cannot reach https://@@@github.com/a/b.git\")", _token("ghp_", 36)),
    ("exception", "HTTPError('403 for https://api.example/v1?api_key=@@&page=2')", _hex),
    ("exception", "HTTPError('403 for https://api.example/v1?api%5Fkey=@@')", _hex),
    ("exception", "HTTPError('https://maps.example/x?q=1&key=@@')", _plain),
    ("exception", "HTTPError('https://s3.example/b/o?X-Amz-Signature=@@&X-Amz-Date=1')", _hex),
    ("exception", "HTTPError('https://x.blob.example/c?sv=2022&sig=@@')", _hex),
    ("exception", "HTTPError('https://app.example/cb#access_token=@@&state=1')", _hex),
    ("exception", "HTTPError('https://hooks.slack.com/services/T0000/B0000/@@')", _token("", 24)),
    ("exception", "OperationalError('could not connect: bob:@@@db.example:5432/shop')", _plain),
    ("exception", "OperationalError('dial bob:@@@tcp(db:3306)/shop')", _plain),
    ("exception", "DatabaseError('scott/@@@db.example:1521/orcl')", _plain),
    # -- DSNs and connection strings
    ("exception", "OperationalError('host=db user=bob password=@@ dbname=shop')", _plain),
    ("exception", "OperationalError(\"host=db password='@@' dbname=shop\")", _phrase),
    ("exception", "Error('Server=db;Uid=bob;Pwd=@@;Database=shop')", _plain),
    ("exception", "Error('DefaultEndpointsProtocol=https;AccountKey=@@;EndpointSuffix=x')", _base64_key),
    ("exception", "Error('Endpoint=sb://h/;SharedAccessKeyName=a;SharedAccessKey=@@')", _base64_key),
    ("kwargs", "{'SENTRY_DSN': 'https://@@@o1.ingest.example/2'}", _hex),
    # -- errors and tracebacks
    ("exception", "ValueError(\"invalid password '@@' for bob\")", _phrase),
    ("exception", "ValueError('the token is \"@@\"')", _phrase),
    ("exception", "KeyError({'password': '@@'})", _odd),
    ("exception", "ValidationError('password: @@ is too common')", _plain),
    ("traceback", _TRACE + "connect(user='bob', password='@@')\nValueError: no\n", _odd),
    ("traceback", _TRACE + "password = '@@'\nValueError: no\n", _phrase),
    ("traceback", _TRACE + "os.environ['DB_PASSWORD'] = \"@@\"\nValueError: no\n", _phrase),
    ("traceback", _TRACE + "def login(user, password: str = '@@', n=1):\nValueError: no\n", _phrase),
    ("traceback", _TRACE + "if password == '@@':\nValueError: no\n", _plain),
    ("traceback", _TRACE + "self.go()\nsqlalchemy.exc.OperationalError: postgresql://bob:@@@db/shop\n", _odd),
    ("traceback", _TRACE + "self.go()\nrequests.HTTPError: 401 for url: https://bob:@@@h/x?y=1\n", _plain),
    ("traceback", _TRACE + "locals:\n  user = 'bob'\n  secret_key = b'@@'\n  n = 1\n", _odd),
    ("traceback", _TRACE + "locals:\n  password: @@\n  n: 1\n", _phrase),
    ("traceback", _TRACE + "x()\nValueError: {'headers': {'X-Auth-Token': '@@'}}\n", _hex),
    ("traceback", _TRACE + f"x()\nValueError: bad key\n{_PEM.format(nl=chr(10))}\n", _pem_body),
    # -- headers
    ("args", "('GET / HTTP/1.1\\r\\nAuthorization: Basic @@\\r\\nHost: x',)", _basic),
    ("args", "('GET /\\r\\nAuthorization: Digest username=\"bob\", response=\"@@\"\\r\\nHost: x',)", _hex),
    ("args", "(['curl', '-H', 'Authorization: Bearer @@', 'https://x'],)", _hex),
    ("args", "('Cookie: theme=dark; sessionid=@@; n=1',)", _hex),
    ("result", "{'Set-Cookie': 'sessionid=@@; Path=/; HttpOnly'}", _hex),
    ("result", "{'Authorization': 'Token @@'}", _hex),
    ("result", "'X-Api-Key: @@'", _hex),
    ("result", "['Bearer @@', 1]", _hex),
    ("result", "'Proxy-Authorization: Basic @@'", _basic),
    # -- known by their shape
    ("args", "('bob', '@@', 3)", _jwt),
    ("args", "('bob', '@@', 3)", _aws),
    ("args", "('AKIAIOSFODNN7EXAMPLE', '@@')", _aws_secret),
    ("args", "('bucket', '@@')", _aws_secret),
    ("args", f"('{_PEM.format(nl=chr(92) + 'n')}', 3)", _pem_body),
    ("result", f"'{{\"pem\": \"{_PEM.format(nl=chr(92) * 2 + 'n')}\"}}'", _pem_body),
    ("args", "('@@',)", _token("ghp_", 36)),
    ("args", "('@@',)", _token("github_pat_", 60, _LETTERS + "_")),
    ("args", "('@@',)", _token("glpat-", 20)),
    ("args", "('@@',)", _token("xoxb-123456789012-", 24)),
    ("args", "('@@',)", _token("sk_live_", 24)),
    ("args", "('@@',)", _token("whsec_", 32)),
    ("args", "('@@',)", _token("AIza", 35, _LETTERS + "_-")),
    ("args", "('@@',)", _token("ya29.", 60, _LETTERS + "_-")),
    ("args", "('@@',)", _token("sk-proj-", 40)),
    ("args", "('@@',)", _token("SG." + "a1B2" * 5 + ".", 40)),
    ("args", "('@@',)", _token("npm_", 36)),
    ("args", "('@@',)", _token("hvs.", 24)),
    ("args", "('karte @@ gültig',)", _spaced(" ")),
    ("args", "('@@',)", _spaced("-")),
    ("args", "(@@, '12/29')", _card),
    ("args", "('« @@ »',)", _amex),
    ("args", "({'card': '@@'},)", _spaced("")),
    ("args", "('id:\\n@@', 3)", _aws),
    ("args", "('a\\r\\n@@\\r\\n', 3)", _token("ghp_", 36)),
    ("args", "('\\t@@', 3)", _aws_secret),
    ("args", "('card\\n@@\\n', 3)", _spaced(" ")),
    ("args", "(b'\\x00@@\\x00', 3)", _token("sk_live_", 24)),
    ("args", "('a\\nBearer @@\\nb', 3)", _hex),
    ("args", "('the password is @@', 3)", _plain),
    ("args", '(\'{"url": "a?password\\\\u003d@@"}\',)', _plain),
    ("exception", "ProgrammingError(\"CREATE USER bob IDENTIFIED BY '@@'\")", _phrase),
    ("result", "{'bearer': '@@'}", _plain),
    ("args", "('@@',)", _token("gAAAAAB", 60, _LETTERS + "_-")),
    # -- names that say it together, or by what their value looks like
    ("kwargs", "{'verificationCode': '@@', 'n': 1}", _number),
    ("kwargs", "{'recovery_codes': ['@@'], 'n': 1}", _number),
    ("kwargs", "{'mfa_code': @@}", _number),
    ("kwargs", "{'userPIN': '@@', 'n': 1}", _number),
    ("kwargs", "{'accountJWT': '@@', 'n': 1}", _plain),
    ("kwargs", "{'connection_string': 'h;u;@@'}", _phrase),
    ("kwargs", "{'connStr': '@@'}", _odd),
    ("kwargs", "{'seed_phrase': '@@'}", _phrase),
    ("kwargs", "{'WIFI_PSK': '@@'}", _plain),
    ("kwargs", "{'code': '@@', 'state': 'x'}", _random),
    ("kwargs", "{'sid': '@@'}", _random),
    ("kwargs", "{'pat': '@@'}", _random),
    ("kwargs", "{'azure_storage_key': '@@'}", _base64_key),
    ("kwargs", "{'kennwort': '@@', 'mot_de_passe': '@@', 'contrasena': '@@'}", _plain),
    ("args", "('grant_type=authorization_code&code=@@&client_id=a',)", _hex),
    ("exception", "HTTPError('404 for https://h/x?ticket=@@&page=2')", _random),
    ("exception", "MaxRetryError('Max retries exceeded with url: /cb?state=1&code=@@ (Caused by x)')", _hex),
    ("result", "'connect.sid=s%3A@@.abc'", _random),
    # -- what is called with a secret
    ("args", "(Password('@@'), 3)", _phrase),
    ("args", "(Secret(name='a', value='@@'), 3)", _odd),
    ("args", "(Credentials('bob', '@@'), 3)", _phrase),
    ("args", "(Cookie(version=0, name='sessionid', value='@@', port=None),)", _hex),
    ("traceback", _TRACE + "user.set_password('@@')\nValueError: no\n", _phrase),
    ("traceback", _TRACE + "if not user.check_password(\"@@\"):\nValueError: no\n", _odd),
    ("traceback", _TRACE + "setattr(user, 'password', '@@')\nValueError: no\n", _phrase),
    ("traceback", _TRACE + 'secret = """@@"""\nValueError: no\n', _phrase),
    ("exception", "SyntaxError('token = \\'\\'\\'@@\\'\\'\\'')", _phrase),
    # -- what libraries say
    ("exception", "AuthenticationError('Incorrect API key provided: @@. You can find it at h')", _plain),
    ("exception", "ValueError('Wrong password (@@) for bob')", _plain),
    ("exception", "ValueError('Session ID: @@')", _plain),
    ("exception", "ValueError('pass phrase: @@')", _plain),
    ("exception", "IntegrityError(1062, \"Duplicate entry '@@' for key 'users.api_token'\")", _phrase),
    ("exception", "ResponseError('Command # 1 (AUTH bob @@) of pipeline caused error: no')", _plain),
    ("exception", "ResponseError('Command # 1 (HELLO 3 AUTH bob @@) of pipeline caused error: no')", _plain),
    ("exception", "SMTPException('AUTH PLAIN @@')", _basic),
    (
        "exception",
        "1 validation error for Login\npassword\n  Too long [type=x, input_value='@@', input_type=str]",
        _phrase,
    ),
    (
        "exception",
        "ValidationError(\"1 error\\ndb.api_key\\n  No [type=x_y, input_value='@@', input_type=str]\")",
        _phrase,
    ),
    ("result", "[{'type': 'x', 'loc': ('body', 'password'), 'msg': 'no', 'input': '@@'}]", _phrase),
    ("result", "{'Name': '/db/password', 'Type': 'SecureString', 'Value': '@@', 'Version': 1}", _phrase),
    ("result", "{'Name': '/db/token', 'Version': 3, 'Value': '@@'}", _phrase),
    # -- YAML, HTML, XML, escapes
    ("args", "('- name: DB_PASSWORD\\n  value: @@\\n',)", _plain),
    ("result", "password: |\n  @@\n  and more\nuser: bob\n", _phrase),
    ("args", "('db:\\n  password: >-\\n    @@\\n  user: bob\\n',)", _phrase),
    ("args", "('<wsse:Password Type=\"PasswordText\">@@</wsse:Password>',)", _plain),
    ("result", "&lt;password&gt;@@&lt;/password&gt;", _plain),
    ("result", "<tr><td>password</td><td class=\"code\"><pre>@@</pre></td></tr>", _plain),
    ("result", "{&quot;accessToken&quot;: &quot;@@&quot;, &quot;n&quot;: 1}", _phrase),
    ("result", "{&#39;password&#39;: &#39;@@&#39;}", _phrase),
    ("result", "'%7B%22password%22%3A%20%22@@%22%7D'", _plain),
    ("result", "'next=x%26client_secret%3D@@'", _plain),
    ("result", "'https://h/cb?next=https%3A%2F%2Fh%2F%3Ftoken%3D@@%26a%3D1'", _plain),
    ("result", "'https%3A%2F%2Fbob%3A@@%40h%2Fx'", _plain),
    ("result", "'{\"url\": \"https:\\/\\/bob:@@@h\\/x\"}'", _plain),
    ("result", " user | bob\n password | @@ |\n", _plain),
    ("result", "password\xa0=\xa0@@", _plain),
    ("result", "password\uff1a@@", _plain),
    # -- URLs and commands
    ("exception", "OSError('https://@@:x-oauth-basic@github.com/a/b.git')", _hex),
    ("exception", "HTTPError('401 for https://@@:@api.example/v1')", _hex),
    ("exception", "OSError('jdbc:oracle:thin:scott/@@@db:1521:orcl')", _plain),
    ("exception", "HTTPError('https://shop.example/password/reset/@@/')", _random),
    ("exception", "HTTPError('https://shop.example/accounts/reset/MQ/@@/?a=1')", _random),
    ("exception", "HTTPError('https://api.telegram.org/bot1234567890:@@/sendMessage')", _token("AA", 33)),
    ("exception", "HTTPError('https://a.webhook.office.com/webhookb2/1@2/IncomingWebhook/@@/3')", _hex),
    ("args", "(['mysql', '-u', 'root', '-p@@', 'shop'],)", _plain),
    ("args", "(\"mysqldump -uroot -p'@@' shop\",)", _phrase),
    ("args", "('sshpass -p @@ ssh root@h',)", _plain),
    ("args", "(['sshpass', '-p', '@@', 'ssh', 'h'],)", _phrase),
    ("args", "('redis-cli -h cache -a @@ ping',)", _plain),
    ("args", "('docker login -u bob -p @@ registry.example',)", _plain),
    # -- more that are known by their shape
    ("args", "('@@',)", _token("gsk_", 52)),
    ("args", "('@@',)", _token("xai-", 80)),
    ("args", "('@@',)", _token("figd_", 40, _LETTERS + "_-")),
    ("args", "('@@',)", _token("PMAK-", 59, "0123456789abcdef")),
    ("args", "('@@',)", _token("rubygems_", 48, "0123456789abcdef")),
    ("args", "('@@',)", _token("pscale_pw_", 43)),
    ("args", "('@@',)", _token("secret_", 43)),
    ("args", "('@@',)", _token("EAAC", 60)),
    ("args", "('@@',)", _token("pat" + "a1B2c3D" * 2 + ".", 64, "0123456789abcdef")),
    ("args", "('@@',)", _token("$2b$12$", 53, _LETTERS + "./")),
    ("args", "('@@',)", _token("pbkdf2_sha256$600000$a1b2c3d4$", 43, _LETTERS + "+/")),
    ("args", "('@@',)", _token("$argon2id$v=19$m=65536,t=3,p=4$abcd$", 43, _LETTERS + "+/")),
    ("result", '{"kty": "EC", "crv": "P-256", "x": "abc", "d": "@@"}', _token("", 43, _LETTERS + "_-")),
    ("result", "---- BEGIN SSH2 PRIVATE KEY ----\n@@\n---- END SSH2 PRIVATE KEY ----", _pem_body),
    ("result", "PuTTY-User-Key-File-3: ssh-rsa\nPrivate-Lines: 1\n@@\nPrivate-MAC: 0a", _pem_body),
    # -- fields of events that have no place of their own
    ("rest", '{"password": "@@", "progress": 3}', _plain),
    ("rest", '{"pin": @@}', _number),
    ("rest", '{"card": @@}', _card),
    ("rest", '{"headers": [["Authorization", "@@"], ["Host", "x"]]}', _hex),
    ("rest", '{"note": "password=@@ host=x"}', _plain),
    ("rest", '{"note": "redis://:@@@h/0"}', _plain),
    ("rest", '{"credentials": {"a": ["@@"]}}', _plain),
    ("rest", '{"env": [{"name": "TOKEN", "value": "@@"}]}', _plain),
    ("rest", '{"note": "{\\"password\\":\\t\\"@@\\"}"}', _plain),
    ("rest", '{"argv": ["mysql", "--password", "@@", "-h", "db"]}', _phrase),
    ("rest", '{"env": [{"Name": "TOKEN", "Value": "@@"}]}', _phrase),
    ("rest", '{"userPIN": "@@", "n": 1}', _number),
    ("rest", '{"sid": "@@"}', _random),
    ("rest", '{"connectionString": "@@"}', _phrase),
    ("rest", '{"key": {"kty": "oct", "k": "@@"}}', _token("", 43, _LETTERS + "_-")),
)  # fmt: skip


def _entries() -> Iterator[Entry]:
    random = Random(11)
    while True:
        for field, shape, make in SHAPES:
            secret = make(random)
            yield Entry(field, shape.replace("@@", secret), secret)


_COUNT: Final = 600
SECRETS: Final = [entry for entry, _ in zip(_entries(), range(_COUNT), strict=False)]

#: What has to stay as it is.
HONEST: Final = (
    "KeyError(\"missing key 'customer'\")",
    "",
    "()",
    "{}",
    "None",
    "shop.orders.tasks.create",
    "(1, 'customer-17')",
    "{'order': 4711, 'dry_run': False}",
    "{'uuid': '6f1e1b1c-4f4b-4b8e-9d7a-3f0f5a6d7e8f'}",
    "('6f1e1b1c-4f4b-4b8e-9d7a-3f0f5a6d7e8f', 3)",
    "{'order_id': 4111111111111112}",
    "('4242424242424241',)",
    "{'id': 1234567890123456789}",
    "1790000000.25",
    "1790000000000",
    "1790000000000000000",
    "{'at': '2026-11-14T10:00:00.123456+00:00'}",
    "('/srv/shop/app/static/images/2026/11/large/item_0001.jpeg',)",
    "('C:\\\\Users\\\\bob\\\\x.txt',)",
    "('https://example.com/a/b?page=2&sort=name',)",
    "('http://localhost:8000/health',)",
    "('https://medium.com/@bob/a-post',)",
    "('https://unpkg.com/react@18.2.0/umd/react.js',)",
    "('https://shop.example/x?email=bob@example.com',)",
    "('redis://cache:6379/0',)",
    "('amqp://rabbit//',)",
    "('redis://[::1]:6379/0',)",
    "('s3://bucket/orders/2026/1.csv',)",
    "('file:///srv/x.txt',)",
    "{'token_count': 5}",
    "{'max_tokens': 4096, 'prompt_tokens': 12}",
    "{'usage': {'total_tokens': 99}}",
    "token_count=5",
    "{'token_type': 'Bearer'}",
    "{'password': None, 'token': ''}",
    "{'is_private': True}",
    "{'author': 'Bob Key', 'authors': ['a', 'b']}",
    "{'passengers': 3, 'passed': 'all'}",
    "{'shipping': 'fast'}",
    "{'routing_key': 'celery', 'cache_key': 'user:17:cart'}",
    "{'key': 'orders/2026/1.csv'}",
    "{'key': '6f1e1b1c-4f4b-4b8e-9d7a-3f0f5a6d7e8f'}",
    "{'primary_key': 5, 'public_key': 'ssh-ed25519 AAAAC3Nz'}",
    "{'keyword': 'shoes', 'monkey': 'see', 'keys': ['a', 'b']}",
    "{'design': 'x', 'signal': 'SIGTERM'}",
    "{'secretary': 'Ann', 'tokenizer': 'bpe', 'compass': 'north'}",
    "{'fields': ['user', 'password', 'email']}",
    "{'password_field': 'pw1', 'session_timeout': 30, 'token_ttl': 60}",
    "KeyError('password')",
    "KeyError: 'token'",
    "TypeError(\"login() got an unexpected keyword argument 'password'\")",
    "TokenExpired('at 10:00')",
    "InvalidTokenError: Signature has expired",
    "TimeoutError(17)",
    "PermissionError(13, 'Permission denied')",
    "ValueError('bad credentials')",
    "OperationalError('FATAL: password authentication failed for user \"bob\"')",
    "('da39a3ee5e6b4b0d3255bfef95601890afd80709',)",
    "('sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08',)",
    "('python:3.11@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08',)",
    "('git@github.com:shop/app.git',)",
    "('bob@example.com', 'mailto:ann@example.com')",
    "celery@worker-01.example",
    "('+49 30 901820', '10.0.0.1:8080')",
    "[4111, 1111, 1111, 1111]",
    "('Basic training', 'bearer authentication')",
    "('task-created', 'ask-me-anything-about-it-please')",
    "{'a': {...}, 'b': [...]}",
    "('12/29', 3.14159265358979)",
    (
        'Traceback (most recent call last):\n  File "/srv/app/auth/session.py", line 31, i'
        "n check_password\n    return self.session.get(url)\nValueError: no\n"
    ),
    "('Grüße aus Köln, 秘密 ist nichts',)",
    "<Order: 17 (paid)>",
    "('x' * 3)",
    "{'pass_rate': 0.98, 'passport_office': 'x'}",
    "{'postal_code': '10115', 'country_code': 'DE', 'status_code': 200, 'code': 404}",
    "{'code': 'SUMMER-2026-SALE', 'ticket': 'SHOP-1234'}",
    "{'code': 'A1B2C3D4E5F6G7H8'}",
    "{'sid': 'CA0123456789abcdef0123456789abcdef'}",
    "('https://shop.example/?code=404&state=open',)",
    "('ssh://git@github.com/shop/app.git',)",
    "SyntaxError: unexpected token '<' at line 1",
    "JSONDecodeError('Unexpected token } in JSON at position 12')",
    "fe_sendauth: no password supplied",
    "authentication: none",
    "auth: disabled",
    "    def login(user: str, password: str) -> Token:",
    "    token = None",
    "InvalidToken('Signature has expired')",
    "get_token('orders')",
    "SecretStr('**********')",
    "Session('web')",
    "{'query': 'SELECT id, name FROM users WHERE id = 3'}",
    "('mysql -h db -P 3306 -p',)",
    "('mkdir -p /srv/data', ['ls', '-p', '/tmp'])",
    "('docker login registry.example',)",
    "AUTH failed",
    "SMTPNotSupportedError('SMTP AUTH extension not supported by server.')",
    "IntegrityError(1062, \"Duplicate entry 'bob@example.com' for key 'users.email'\")",
    "('https://shop.example/password/reset/',)",
    "('https://shop.example/reset/6f1e1b1c-4f4b-4b8e-9d7a-3f0f5a6d7e8f/',)",
    (
        "1 validation error for Order\\namount\\n  Input should be greater than 0 "
        "[type=greater_than, input_value=-1, input_type=int]"
    ),
    "[{'type': 'missing', 'loc': ('body', 'amount'), 'msg': 'Field required', 'input': {'n': 1}}]",
    "{'Name': '/shop/region', 'Type': 'String', 'Value': 'eu-central-1'}",
    "('a%3Db%26page%3D2', 'x &quot;quoted&quot; y')",
    "<td>name</td><td>bob</td>",
    "the connection string is missing",
    "{'budget': '$5', 'price': '$1$'}",
)
