"""Small tokenizers that between them use every part of the file format."""

import json
import pathlib
import tempfile

import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as spm
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from corpus import CORPUS

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
TEXT = [t for t in CORPUS if "<" not in t] * 3


def special(*names):
    return [AddedToken(n, special=True, normalized=False) for n in names]


def bytelevel():
    """GPT-2: the pre-tokenizer's own pattern, a space put before the text."""
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(show_progress=False, vocab_size=600, initial_alphabet=BYTES, special_tokens=special("<|endoftext|>", "<s>", "</s>"))
    tok.train_from_iterator(TEXT, trainer)
    tok.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 1))
    return tok


def llama3():
    """Llama 3: its pattern, and words that are tokens without being merged."""
    tok = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(LLAMA3), "isolated")
    tok.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.train_from_iterator(TEXT, trainers.BpeTrainer(show_progress=False, vocab_size=500, initial_alphabet=BYTES))
    vocab = tok.get_vocab()
    merges = merges_of(tok)
    for word in ["Ġworld", "Hello", "Ġbrown", "foolishness", "ä½łå¥½"]:
        vocab.setdefault(word, len(vocab))
    tok.model = models.BPE(vocab, merges, ignore_merges=True)
    tok.decoder = decoders.ByteLevel()
    tok.add_special_tokens(special("<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>"))
    begin = tok.token_to_id("<|begin_of_text|>")
    template = processors.TemplateProcessing(single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", begin)])
    tok.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return tok


def qwen2():
    """Qwen 2: NFC first; added tokens that are not special."""
    tok = Tokenizer(models.BPE())
    tok.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(QWEN2), "isolated")
    tok.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.train_from_iterator(TEXT, trainers.BpeTrainer(show_progress=False, vocab_size=500, initial_alphabet=BYTES))
    tok.decoder = decoders.ByteLevel()
    tok.add_special_tokens(special("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    tok.add_tokens([AddedToken(t, normalized=False) for t in ["<tool_call>", "</tool_call>", "<think>", "</think>"]])
    tok.post_processor = processors.ByteLevel(trim_offsets=False)
    return tok


def llama2():
    """Llama 2: SentencePiece BPE with byte fallback and no pre-tokenizer."""
    seed = Tokenizer(models.BPE())
    seed.pre_tokenizer = pre_tokenizers.Metaspace()
    seed.train_from_iterator(TEXT, trainers.BpeTrainer(show_progress=False, vocab_size=400, limit_alphabet=120))
    vocab = {t: i for i, t in enumerate(["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)])}
    for token, _ in sorted(seed.get_vocab().items(), key=lambda kv: kv[1]):
        vocab.setdefault(token, len(vocab))
    tok = Tokenizer(models.BPE(vocab, merges_of(seed), unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tok.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tok.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tok.add_special_tokens(special("<unk>", "<s>", "</s>"))
    tok.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    return tok


def unknown():
    """BPE over characters where unknown ones are fused, with the added tokens' options."""
    tok = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    tok.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    tok.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tok.train_from_iterator(TEXT, trainers.BpeTrainer(show_progress=False, vocab_size=300, limit_alphabet=60, special_tokens=["<unk>", "<s>"]))
    tok.decoder = decoders.Metaspace(prepend_scheme="first")
    tok.add_tokens([
        AddedToken("<mask>", lstrip=True, rstrip=True, special=True, normalized=False),
        AddedToken("word", single_word=True, normalized=True),
        AddedToken("<word>", lstrip=True, normalized=False),
        AddedToken("CAFÉ", normalized=True),
        AddedToken("dolor", rstrip=True, normalized=True),
        AddedToken("ß", single_word=True, normalized=True),  # not in the model's vocabulary
    ])
    return tok


def spaces():
    """Added tokens that are white space, and others that take the white space around them."""
    tok = Tokenizer(models.BPE(unk_token="<unk>"))
    tok.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    tok.train_from_iterator(TEXT, trainers.BpeTrainer(show_progress=False, vocab_size=200, limit_alphabet=60, special_tokens=["<unk>", "<s>"]))
    tok.decoder = decoders.Metaspace(prepend_scheme="never")
    tok.add_tokens([
        AddedToken("  ", rstrip=True, normalized=False),
        AddedToken("\n", lstrip=True, normalized=False),
        AddedToken("\t", lstrip=True, rstrip=True, normalized=False),
        AddedToken(".", rstrip=True, normalized=False),
        AddedToken("\n\n", normalized=False),
    ])
    return tok


def clip():
    """CLIP: a mark at the end of words, and a pattern no scanner knows."""
    tok = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    tok.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()])
    split = pre_tokenizers.Split(Regex(r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"), "removed", invert=True)
    tok.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    trainer = trainers.BpeTrainer(show_progress=False, vocab_size=900, initial_alphabet=BYTES, end_of_word_suffix="</w>", special_tokens=["<unk>", "<s>", "</s>"])
    tok.train_from_iterator(TEXT, trainer)
    tok.decoder = decoders.BPEDecoder("</w>")
    tok.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 1))
    return tok


def wordpiece():
    """BERT."""
    tok = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=30))
    tok.normalizer = normalizers.BertNormalizer()
    tok.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tok.train_from_iterator(TEXT, trainers.WordPieceTrainer(show_progress=False, vocab_size=500, limit_alphabet=150, special_tokens=names))
    tok.decoder = decoders.WordPiece()
    tok.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tok


def charsmap():
    """A small table of replacements compiled by SentencePiece."""
    rules = {"ﬁ": "fi", "Å": "å", "①": "1", "…": "...", "\u00a0": " ", "\u3000": " ", "e\u0301": "é", "\t": " ", "\u200b": "", "Ｔ": "T", "㍿": "株式会社", "r\u0301": "ŕ", "\u0600": ""}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        line = lambda a, b: " ".join(f"{ord(c):X}" for c in a) + "\t" + " ".join(f"{ord(c):X}" for c in b)
        (folder / "rules.tsv").write_text("\n".join(line(a, b) for a, b in rules.items()) + "\n")
        (folder / "text").write_text("\n".join(t for t in TEXT if t.strip() and "\n" not in t and "\x00" not in t))
        sentencepiece.SentencePieceTrainer.train(
            input=str(folder / "text"), model_prefix=str(folder / "m"), vocab_size=2000, hard_vocab_limit=False, model_type="char",
            normalization_rule_tsv=str(folder / "rules.tsv"), minloglevel=2)
        proto = spm.ModelProto()
        proto.ParseFromString((folder / "m.model").read_bytes())
        return proto.normalizer_spec.precompiled_charsmap


def unigram(fallback):
    tok = Tokenizer(models.Unigram())
    clean = [normalizers.Precompiled(charsmap()), normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(" {2,}"), "▁")]
    tok.normalizer = normalizers.Sequence(clean)
    tok.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(show_progress=False, vocab_size=300, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>", n_sub_iterations=1)
    tok.train_from_iterator([t for t in TEXT if t.isascii()], trainer)
    pieces = [(token, score) for token, score in scores_of(tok)]
    if fallback:
        pieces += [(f"<0x{b:02X}>", -20.0) for b in range(256)]
    tok.model = models.Unigram(pieces, 2, fallback)
    tok.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()]) if fallback else decoders.Metaspace()
    tok.add_special_tokens(special("<pad>", "</s>", "<unk>"))
    tok.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return tok


def merges_of(tok):
    return [tuple(m) for m in json.loads(tok.to_str())["model"]["merges"]]


def scores_of(tok):
    return json.loads(tok.to_str())["model"]["vocab"]


def make(folder):
    """Saves the tokenizers to the folder, as the Go tests will read them.

    Training is not the same every time, so those already there are kept; delete one to make it anew.
    """
    folder.mkdir(parents=True, exist_ok=True)
    makers = {f.__name__: f for f in (bytelevel, llama3, qwen2, llama2, unknown, spaces, clip, wordpiece)}
    makers["unigram"] = lambda: unigram(fallback=False)
    makers["unigram-bytes"] = lambda: unigram(fallback=True)
    for name, maker in makers.items():
        path = folder / f"{name}.json"
        if not path.exists():
            maker().save(str(path), pretty=False)
    return {name: Tokenizer.from_file(str(folder / f"{name}.json")) for name in makers}
