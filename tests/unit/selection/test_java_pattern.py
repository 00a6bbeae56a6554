"""The translation of Java's regular expressions, compared with Java itself."""

import base64
import random
import re
import shutil
import subprocess
import warnings

import pytest

from cdc_core.selection.patterns import compile_pattern
from tests.support.waits import patient

# Reads lines of a pattern and strings in base64; prints E, or for each string whether the pattern matches all of it.
JUDGE = """
import java.io.*; import java.nio.charset.StandardCharsets; import java.util.*; import java.util.regex.*;
public class Judge {
    static String text(String part) { return new String(Base64.getDecoder().decode(part), StandardCharsets.UTF_8); }
    public static void main(String[] arguments) throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder out = new StringBuilder();
        for (String line; (line = in.readLine()) != null; out.append('\\n')) {
            String[] parts = line.split("\\t", -1);
            try {
                Pattern pattern = Pattern.compile(text(parts[0]), Pattern.CASE_INSENSITIVE);
                for (int n = 1; n < parts.length; n++) out.append(pattern.matcher(text(parts[n])).matches() ? 1 : 0);
            } catch (RuntimeException error) { out.append('E'); }
        }
        System.out.print(out);
    }
}
"""
NAMES = [
    *("", "a", "b", "c", "x", "A", "B", "X", "ab", "aB", "xx", "abc", "aab", "aaa", "a.b", "a b", "1", "12", "_", "-"),
    *("^", "]", "[", "&", "{", "}", "$", ".", "\\", "|", "a{1}", "a\n", "\n", "\r\n", "\r", "\t", " ", "\x0b", "\x85"),
    *("é", "É", "ß", "ſ", "\u212a", "K", "k", "s", "α", "Ω", "日", "😀", "\u2028", "\u2029", "\xa0", "\u180e", "\0"),
    *("public.t.secret_abc", "public.t.secret_x", "public.t.Secret_A", "PUBLIC.T", "public.t", "a-z", "<", "\x1b", "e"),
    *("\x01", "~", "\x7f", "!", "@", ",", "a&b", "b&", "QE", "\\Q", "aa", "abab", "aBAb", "Aa"),
]
EXACT = [
    *(r"public\.t\.secret_[a-z&&[^x]]+", r"[a-z&&[def]]", r"[a-z&&[^bc]]", r"[a-z&&[^m-p]]", r"[a-d[m-p]]", r"[^a[b]]"),
    *("[a-z&&b-x&&[^c]]", "[^a-z&&[^x]]", "[a-c&&b]", "[a-z&&bc]", "[a-z&&[b]c]", "[a-z&&[bc]&&c]", "[a&b]", "[a&]"),
    *(
        "[ab&&bc&&[b]d]",
        "[]a]",
        "[^]a]",
        "[a-]",
        "[-a]",
        "[a-z-9]",
        "[a^]",
        "[{}]",
        "[.$|]",
        "[a-c[x]&&[^b]]",
        "[a[b[c]]]",
    ),
    *(
        r"[^\p{L}]",
        r"\p{L}+",
        r"\pL",
        r"\PL",
        r"\P{Alpha}",
        r"\p{Lower}",
        r"\p{Upper}",
        r"[\p{Lower}\d]",
        r"[^\p{Lower}]",
    ),
    *(
        r"\p{IsL}",
        r"\p{Lu}",
        r"\p{IsLu}",
        r"\p{gc=Ll}",
        r"\p{LC}",
        r"\p{LD}",
        r"\p{L1}",
        r"\p{all}",
        r"\p{ASCII}",
        r"\p{Zs}",
    ),
    *(r"\p{Punct}", r"\p{Graph}", r"\p{Print}", r"\p{Blank}", r"\p{Cntrl}", r"\p{XDigit}", r"\p{Space}", r"\p{Alnum}"),
    *(
        r"[\p{L}&&[^\p{Lower}]]",
        r"[\P{L}&&\p{ASCII}]",
        r"[\w&&[^\d_]]",
        r"[^\w\s]",
        r"\w",
        r"\W",
        r"\d",
        r"\D",
        r"\s",
        r"\S",
    ),
    *(r"\h", r"\H", r"\v", r"\V", r"\R", r"[\h\v]", r"\t", r"\n", r"\r", r"\f", r"\a", r"\e", r"\cA", r"\c[", r"\ca"),
    *(
        r"\x41",
        r"\x{41}",
        r"\x{1F600}",
        r"\u0041",
        r"\uD83D\uDE00",
        r"\0101",
        r"\061",
        r"\0611",
        r"\00",
        r"[\x41-\x43]",
    ),
    *(r"\Qa.b\E", r"\Q[\E", r"\Qa\Eb", r"\Qab\E+", r"[\Q^]\E]", r"\Qa", r"a\Q\Eb", r"\\Qa", r"[\Qa-c\E]", r"\Q\\E"),
    *(
        "a*+a",
        "a*+",
        "a++b",
        "a?+a",
        "a{1,2}+a",
        "(?>a|ab)c",
        "(?>a|ab)",
        "a{2}",
        "a{1,}",
        "a{0,2}?b",
        "(?:a|b)+?",
        "(a|b)*",
    ),
    *(
        "(?i)a",
        "(?-i)a",
        "a(?-i)b",
        "(?-i:a)b",
        "((?-i)a)b",
        "a(?-i)b|c",
        "(?s).",
        ".",
        "(?i-s).",
        "(?is:.)x",
        "(?s-i:.x)",
    ),
    *(
        r"(?<n>a)b\k<n>\k<n>?",
        r"(a)\1",
        r"(a)(b)\2",
        r"(?<one>a)(?<two>b)\1\2",
        r"(ab)\1",
        r"(a)\11?",
        r"(?-i)(a)(?i)\1",
    ),
    *(
        "^a$",
        "$",
        "a$\n",
        "^",
        r"\Aa\z",
        r"a\Z\n",
        r"a\Z",
        r"\n$",
        r"\r$\n",
        r"a$",
        "(?=a)a",
        "(?!a)b",
        "a(?<=a)b",
        "(?<!a)b",
    ),
    *(
        "",
        "a|",
        "|a",
        "()",
        "(|a)",
        "a||b",
        "(?:)a",
        r"\.",
        r"\-",
        r"\<",
        r"\_",
        r"\é",
        "}",
        "]",
        "a}",
        "a]",
        "é",
        "ß",
        "K",
        "s",
    ),
    *(
        "[é]",
        "[É-é]",
        "[k]",
        "[^k]",
        "[^K]",
        "[A-z]",
        "[Z-a]",
        "[^A-Z]",
        "[\u2100-\u2200]",
        "😀",
        "[😀]",
        "[^😀]",
        "[a&&a]",
    ),
    *(
        "(?<!x)a",
        "a{1,2}(?<=a{1,2})b?",
        "<",
        "a-z",
        "(?i)[a-c]",
        "(?-i)[a-c]",
        r"(?-i)\p{Lower}",
        r"(?-i)\p{Lu}",
        r"[\d-]",
        r"[\w-z]",
        r"[a\]b]",
    ),
]
BROKEN = [
    *(
        "[a-z",
        "[]",
        "[^]",
        "a{",
        "a{1",
        "a{1,2",
        "a{2,1}",
        "{",
        "a{b}",
        "*a",
        "a**",
        "+",
        "(",
        ")",
        "a)",
        "(?<1>a)",
        "(?<n>a",
    ),
    *(
        r"\k<n>",
        r"\p{Klingon}",
        r"\p{L",
        r"\y",
        r"\x1",
        r"\u12",
        r"\x{110000}",
        r"\0",
        r"\08",
        "[z-a]",
        "a\\",
        r"\E",
        r"\j",
    ),
    *("(?<n>a)(?<n>b)", "[a&&]", "[[]a", "(?y)", "[a-z&&", "(?#c)", "(?P<n>a)", r"\c"),
]
KNOWN = (
    "intersection with nothing|without a largest length|quantifier of a quantifier|quantifier after nothing"
    "|ends with a class"
)
REFUSED = {
    r"\p{javaLowerCase}": "the property javaLowerCase at character 1",
    r"[\p{IsGreek}]": "the property IsGreek at character 2",
    r"\p{InGreek}": "the property InGreek",
    r"\p{IsAlphabetic}": "the property IsAlphabetic",
    r"a\b": r"the escape \\b at character 2",
    r"\Ga": r"the escape \\G",
    r"\X": r"the escape \\X",
    r"\N{DIGIT ONE}": r"the escape \\N",
    "(?u)a": "the flag u at character 1",
    "a(?x) b": "the flag x at character 2",
    "(?U)a": "the flag U",
    "(?m)^a": "the flag m",
    r"\1(a)": "a reference to a group that has not ended before it",
    r"(a\1)": "a reference to a group that has not ended before it",
    "(?<=a+)b": "a look-behind without a largest length at character 6",
    "a{1": "a brace that is no quantifier .* at character 2",
    "[a-z&&]": "an intersection with nothing at character 5",
    "[a-z": "a class that is not closed at character 1",
}


def judged(patterns: list[str], names: list[str], folder) -> dict[str, str]:
    """What Java says of each pattern."""
    source = folder / "Judge.java"
    source.write_text(JUDGE, encoding="utf-8")
    told = ["\t".join(base64.b64encode(each.encode()).decode() for each in (one, *names)) for one in patterns]
    done = subprocess.run(
        [shutil.which("java") or "java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", str(source)],
        input="\n".join(told) + "\n",
        capture_output=True,
        text=True,
        timeout=patient(120),
        check=True,
    )
    return dict(zip(patterns, done.stdout.split("\n"), strict=False))


def translated(pattern: str, names: list[str]) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = compile_pattern(pattern)
    except ValueError:
        return "E"
    return "".join("1" if found.fullmatch(name) else "0" for name in names)


def reason(pattern: str) -> str:
    try:
        compile_pattern(pattern)
    except ValueError as error:
        return str(error)
    return ""


def made_up(random_: random.Random, depth: int = 3) -> str:
    """A pattern of the constructs above, valid or not."""
    inner = lambda: made_up(random_, depth - 1) if depth else random_.choice("abx1")  # noqa: E731
    choices = [
        lambda: random_.choice(
            [*"abxkAB1_&-^.$", r"\.", r"\w", r"\D", r"\p{L}", r"\P{Lower}", r"\Q&^\E", r"\s", "é", "\u212a"]
        ),
        lambda: inner() + inner(),
        lambda: f"(?:{inner()}|{inner()})",
        lambda: random_.choice(["(", "(?i:", "(?-i:", "(?>", "(?=", "(?!", "(?<=", "(?<!"]) + inner() + ")",
        lambda: inner() + random_.choice(["*", "+", "?", "{2}", "{1,2}", "*+", "?+", "+?", "{1,}"]),
        lambda: _class_of(random_, 3),
        lambda: random_.choice(["(?i)", "(?-i)"]) + inner(),
    ]
    return random_.choices(choices, (4, 6, 2, 2, 3, 6, 1))[0]()


def _class_of(random_: random.Random, depth: int) -> str:
    parts = [random_.choice(["", "", "^"])]
    for _ in range(random_.randint(1, 4)):
        parts.append(
            random_.choice(
                [
                    *"abxKk1&-^_]",
                    "a-c",
                    "A-z",
                    r"\d",
                    r"\w",
                    r"\W",
                    r"\]",
                    r"\-",
                    r"\p{Upper}",
                    r"\P{L}",
                    "&&",
                    "&&",
                    "é",
                    "[b]",
                ]
            )
            if depth == 0 or random_.random() < 0.7
            else _class_of(random_, depth - 1)
        )
    return f"[{''.join(parts)}]"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("java") is None, reason="needs Java")
def test_every_translated_pattern_matches_what_java_matches(tmp_path):
    random_ = random.Random(17)
    some = list(dict.fromkeys(made_up(random_) for _ in range(3000)))
    wanted = judged([*EXACT, *BROKEN, *REFUSED, *some], NAMES, tmp_path)
    found = {pattern: translated(pattern, NAMES) for pattern in wanted}
    assert [pattern for pattern in EXACT if found[pattern] == "E"] == []
    assert [pattern for pattern in BROKEN if found[pattern] != "E"] == []
    wrong = {pattern for pattern in wanted if found[pattern] not in ("E", wanted[pattern])}
    said = {
        pattern: [
            name for name, a, b in zip(NAMES, found[pattern], wanted[pattern].ljust(99, "E"), strict=False) if a != b
        ]
        for pattern in sorted(wrong, key=len)
    }
    assert not said, f"{len(said)} of {len(wanted)}: {list(said.items())[:20]}"
    # What Java accepts is refused for few reasons.
    valid = [pattern for pattern in some if wanted[pattern] != "E"]
    refused = {pattern: reason(pattern) for pattern in valid if found[pattern] == "E"}
    assert len(valid) > 1500 and {why for why in refused.values() if re.search(KNOWN, why) is None} == set()


@pytest.mark.parametrize("pattern", REFUSED)
def test_a_construct_without_an_exact_translation_is_named_with_its_position(pattern):
    with pytest.raises(ValueError, match=REFUSED[pattern]):
        compile_pattern(pattern)
