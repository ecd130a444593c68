# SPDX-License-Identifier: Apache-2.0
"""Random strings and made-up tokenizers for comparing serve/ with the Python package `tokenizers`."""
import random
import unicodedata

ALPHABETS = ("abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789", "àéîõüçñßøåœæÀÉÎÕÜÇÑİŞşĞğ",
             "абвгдежзийклмнопрстуфхцчшщъыьэюяЁЙёй", "αβγδεζηθικλμνξοπρστυφχψωΆΈΉΌΣς", "אבגדהוזחטי", "ابتثجحخدذ", "अआइईउऊकखगघि",
             "กขคงจฉชซ", "한국어가각힣", "日本語漢字仮名", "あいうえおがぎバパ", "ᾳῃῳΐΰἀἁ", "ǄǅǆǇﬁﬂ")
SPACES = " \t\n\r\u00a0\u1680\u2003\u2028\u2029\u202f\u3000\u000b\u000c\u0085\u200b"
ODD = "\u0000\u0007\u007f\u00ad\u200c\u200d\u200e\ufeff\ufffd\ufffe\uffff\ue000\U000e0001\U0010ffff"
# Combining characters that strip_accents leaves, and decompositions that contain them.
KEPT = "\u0345\U0001d165\U0001d166\U0001d15e\U0001d160\U0001d1bb\u09be\u09c7\u09cb\u0bcb\u0cca\u0ccb\u0dde\u302e\u302f\u1b44\u0f73\u0344"
EMOJI = ["😀", "👩‍💻", "👍🏽", "🇫🇷", "❤️", "1️⃣", "🏴󠁧󠁢󠁥󠁮󠁧󠁿"]
SPECIAL = ["[CLS]", "[SEP]", "[MASK]", "[PAD]", "[UNK]", "[sep]", "[Mask]", "[", "]", "[SEP", "SEP]", "##", "##ing", "[[SEP]]", "<mask>",
           "Foo", "foo bar", "Éa", "@@", "  tail"]
ASSIGNED = [c for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]
MARKS = [c for c in ASSIGNED if unicodedata.combining(chr(c))]


class Strings:
    """An endless source of texts. The same for a seed and a list of words, on one version of Python."""

    def __init__(self, seed, words):
        self.choice = random.Random(seed)
        self.words = [w for w in words if w.isalpha()] or ["word"]
        pick = self.choice.choice
        self.kinds = (
            lambda: pick(self.words), lambda: pick(self.words), lambda: pick(self.words) + pick(self.words),
            lambda: pick(self.words).capitalize(), lambda: pick(" .,;:!?'\"-()/&%$#@*+=<>{}|~`^_\\"),
            lambda: self.some(pick(ALPHABETS), 8), lambda: self.some(pick(ALPHABETS), 3) + self.some(pick(ALPHABETS), 3),
            lambda: chr(pick(ASSIGNED)), lambda: "".join(chr(pick(ASSIGNED)) for _ in range(4)), lambda: chr(self.anything()),
            lambda: pick("aeos한が") + "".join(chr(pick(MARKS)) for _ in range(self.choice.randrange(1, 6))),
            lambda: pick("aक中\u0cc6") + self.some(KEPT, 5) + "".join(chr(pick(MARKS)) for _ in range(2)) + self.some(KEPT, 3),
            lambda: self.some(SPACES, 3), lambda: self.some(ODD, 2), lambda: pick(EMOJI), lambda: pick(SPECIAL),
            lambda: self.long_word())

    def anything(self):
        c = self.choice.randrange(0x110000)
        return c if not 0xD800 <= c <= 0xDFFF else 0x20

    def some(self, alphabet, most):
        return "".join(self.choice.choice(alphabet) for _ in range(self.choice.randrange(1, most + 1)))

    def long_word(self):
        if self.choice.random() < 0.8:
            return self.some("abc", 20)
        return self.choice.choice(("a", "é", "e\u0301", "中a", "ab", "İ", "한")) * self.choice.choice((33, 50, 99, 100, 101, 130))

    def take(self, count, most=11):
        """Texts of at most `most` parts."""
        for _ in range(count):
            parts = []
            for _ in range(self.choice.randrange(1, most + 1)):
                parts.append(self.choice.choice(self.kinds)())
                if self.choice.random() < 0.6:
                    parts.append(" ")
            yield "".join(parts)


def added(content, number, **flags):
    names = ("single_word", "lstrip", "rstrip", "normalized", "special")
    return {"id": number, "content": content, **{n: flags.get(n, False) for n in names}}


def made_up(words, extra, normalizer, post_processor, decoder, prefix="##", limit=100):
    vocab = {w: i for i, w in enumerate(words)}
    tokens = [added(w, vocab[w], special=True) for w in ("[PAD]", "[UNK]", "[CLS]", "[SEP]")]
    new = [content for content, _ in extra if content not in vocab]
    tokens += [added(content, vocab.get(content, len(words) + (new.index(content) if content in new else 0)), **flags)
               for content, flags in extra]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens,
            "normalizer": {"type": "BertNormalizer", **normalizer}, "pre_tokenizer": {"type": "BertPreTokenizer"},
            "post_processor": post_processor, "decoder": decoder,
            "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": prefix,
                      "max_input_chars_per_word": limit, "vocab": vocab}}


def small_vocabulary(prefix="##"):
    """Special tokens, letters and pieces of words of many scripts, so that most random words have tokens."""
    letters = sorted(set("".join(ALPHABETS) + "!\"#$%&'()*+,-./:;<=>?@[]^_`{|}~" + KEPT + "\u0307"
                         + unicodedata.normalize("NFD", "".join(ALPHABETS))))
    pieces = ["the", "and", "ing", "tion", "er", "re", "ab", "abc", "aa", "aaaa", "cab", "the re", "сто", "한", "ние", "foo", "bar"]
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"] + letters + [prefix + c for c in letters if prefix] + pieces
    words += [prefix + p for p in pieces if prefix]
    return list(dict.fromkeys(words))


def made_up_tokenizers():
    """Pairs of a name and the content of a tokenizer.json."""
    on = {"clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True}
    cased = {"clean_text": True, "handle_chinese_chars": True, "strip_accents": False, "lowercase": False}
    nothing = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": True}
    accents = {"clean_text": False, "handle_chinese_chars": True, "strip_accents": True, "lowercase": False}
    bert = {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}
    decoder = {"type": "WordPiece", "prefix": "##", "cleanup": True}
    template = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "[SEP]", "type_id": 0}}, {"SpecialToken": {
        "id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}], "pair": [{"Sequence": {"id": "A", "type_id": 0}},
        {"Sequence": {"id": "B", "type_id": 1}}], "special_tokens": {
            "[SEP]": {"id": "[SEP]", "ids": [3, 0], "tokens": ["[SEP]", "[PAD]"]}, "[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]}}}
    roberta = {"type": "RobertaProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2], "trim_offsets": True, "add_prefix_space": False}
    words = small_vocabulary()
    raw = [("<mask>", {"lstrip": True, "special": True}), ("[MASK]", {"rstrip": True, "special": True}), ("foo", {"single_word": True}),
           ("ab", {"single_word": True, "lstrip": True, "rstrip": True}), ("  tail", {}), ("[SEP", {"special": True}), ("中", {})]
    normal = [("Foo", {"normalized": True}), ("É", {"normalized": True, "lstrip": True}), ("[Mask]", {"normalized": True, "rstrip": True}),
              ("<mask>", {"lstrip": True, "special": True}), ("cab", {"normalized": True, "single_word": True}),
              ("foo bar", {"normalized": True, "special": True}), ("日", {"normalized": True})]
    yield "added tokens", made_up(words, raw, on, bert, decoder)
    yield "normalised added tokens", made_up(words, normal, on, template, {**decoder, "cleanup": False})
    yield "cased", made_up(words, raw, cased, None, None)
    yield "nothing", made_up(words, normal[:1] + raw[:2], nothing, {**roberta}, decoder)
    yield "accents", made_up(words, raw, accents, {**roberta, "trim_offsets": False}, decoder, limit=7)
    yield "no prefix", made_up(small_vocabulary(""), [], on, bert, decoder, prefix="")
    yield "another prefix", made_up(small_vocabulary("e"), [], on, template, {**decoder, "prefix": "e"}, prefix="e")
