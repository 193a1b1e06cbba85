"""Single normalizers, pre-tokenizers and decoders, each tried by itself."""

import json

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

import tiny
from corpus import CORPUS

TEXTS = CORPUS[::3] + [t for t in CORPUS if not t.isascii()][::2] + ["a①②b½c²Ⅷ৴Ⓐ", "क्षि x\u200dy", "don't_a-b"]

NORMALIZERS = [
    normalizers.NFC(), normalizers.NFD(), normalizers.NFKC(), normalizers.NFKD(), normalizers.Lowercase(), normalizers.StripAccents(), normalizers.Nmt(),
    normalizers.Strip(), normalizers.Strip(left=False), normalizers.Strip(right=False), normalizers.Prepend("▁"), normalizers.Replace(" ", "▁"),
    normalizers.Replace(Regex(r"\p{N}+"), "#"), normalizers.Replace(Regex(r"^\w"), ""), normalizers.BertNormalizer(),
    normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False), normalizers.BertNormalizer(strip_accents=True, lowercase=False),
    normalizers.ByteLevel(), normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]),
]

BEHAVIORS = ["removed", "isolated", "contiguous", "merged_with_previous", "merged_with_next"]

PRE_TOKENIZERS = [
    pre_tokenizers.Whitespace(), pre_tokenizers.WhitespaceSplit(), pre_tokenizers.BertPreTokenizer(), pre_tokenizers.Punctuation(), pre_tokenizers.Digits(), pre_tokenizers.Digits(individual_digits=True),
    pre_tokenizers.CharDelimiterSplit("-"), pre_tokenizers.Metaspace(), pre_tokenizers.Metaspace(prepend_scheme="never"), pre_tokenizers.Metaspace(prepend_scheme="first", split=False),
    pre_tokenizers.ByteLevel(add_prefix_space=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False), pre_tokenizers.Split(Regex(tiny.GPT2), "isolated"),
    pre_tokenizers.Split(Regex(tiny.LLAMA3), "isolated"), pre_tokenizers.Split(Regex(tiny.QWEN2), "removed", invert=True), pre_tokenizers.Split(Regex(tiny.LLAMA3), "contiguous"),
    pre_tokenizers.Split(Regex(r"[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"), "isolated"),
    pre_tokenizers.Split(Regex(r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"), "isolated"),
    pre_tokenizers.Split(Regex(r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|\p{N}{1,3}|\s+"), "isolated"),
    pre_tokenizers.Split(Regex(r"(?=[A-Z])"), "isolated"), pre_tokenizers.Split(Regex(r"a*"), "contiguous"), pre_tokenizers.Split(Regex(r"\w+|[^\w\s]"), "removed", invert=True),
    pre_tokenizers.Split(Regex(r"\b\w+\b"), "isolated"), pre_tokenizers.Split(Regex(r"\B\W"), "merged_with_next"),
    pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r"\p{N}{1,3}"), "isolated"), pre_tokenizers.Split(Regex("[一-龥\u3040-ゟ゠-ヿ]+"), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]),
] + [pre_tokenizers.Split(" ", b, invert) for b in BEHAVIORS for invert in (False, True)] + [pre_tokenizers.Punctuation(b) for b in BEHAVIORS]

TOKENS = [
    [], ["a"], ["▁Hello", "▁world", "!"], ["▁", "▁Hello"], ["Hello", "▁", "world▁"], ["<0x41>", "<0xE2>", "<0x96>", "<0x81>", "b"], ["<0xE2>", "<0x96>"], ["a", "<0xFF>", "<0x41>", "b"], ["<0x0A>", "x", "<0x0a>"], ["<0xZZ>"],
    ["ĠHello", "Ġworld", "Ċ"], ["Ã", "©"], ["Ã"], ["â", "Ĥ"], ["âĤ", "¬", "ð", "ŁĺĢ"], ["ðŁ", "ĺ", "a"], ["é", "日本"], ["hello", "##ing", "do", "not", "n't", ",", "'", "s", "."], ["##a", "##b"], ["do not", " .", "x"], ["low</w>", "er</w>", "</w>"],
    ["  a", "b  ", "   "], [" ", "a"], ["H", "HHey", "yH"],
]

DECODERS = [
    decoders.ByteLevel(), decoders.ByteFallback(), decoders.Fuse(), decoders.Replace("▁", " "), decoders.Replace(Regex(r"\s+"), "_"), decoders.Strip(" ", 1, 0), decoders.Strip("H", 2, 0), decoders.Metaspace(), decoders.Metaspace(prepend_scheme="never"),
    decoders.WordPiece(), decoders.WordPiece(cleanup=False), decoders.BPEDecoder(),
    decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]), decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()]), decoders.Sequence([]),
]


def config(field, step):
    """The step as a tokenizer.json writes it."""
    tok = Tokenizer(models.BPE())
    setattr(tok, field, step)
    return json.loads(tok.to_str())[field]


def pieces(step, text):
    """The pieces a text is cut into; those the library would drop are empty."""
    return [piece for piece, _ in step.pre_tokenize_str(text) if piece] if text else []


def all():
    return {
        "texts": TEXTS,
        "tokens": TOKENS,
        "normalizers": [{"config": config("normalizer", s), "want": [s.normalize_str(t) for t in TEXTS]} for s in NORMALIZERS],
        "pre_tokenizers": [{"config": config("pre_tokenizer", s), "want": [pieces(s, t) for t in TEXTS]} for s in PRE_TOKENIZERS],
        "decoders": [{"config": config("decoder", s), "want": [s.decode(list(t)) if t else "" for t in TOKENS]} for s in DECODERS],
    }
