"""The texts every tokenizer is compared on: ordinary ones, and ones chosen to hurt."""

PLAIN = [
    "", " ", "  ", "   ", "\n", "\n\n", "\t", "\r\n", "a", "ab", "Hello, world!", "hello world", " hello", "hello ",
    "  hello", "hello  ", "hello  world", "hello   world", "\thello", "hello\n", "hello\n\nworld", "hello \n world",
    "hello\r\nworld\r\n", " \n \n ", "\n hello", "\n\n\n\n", "a\n\n\nb", "tab\tseparated\tvalues\n", "trailing   \n",
    "The quick brown fox jumps over the lazy dog.",
    "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness.",
    "Call me Ishmael. Some years ago\u2014never mind how long precisely\u2014having little or no money in my purse.",
    "Dr. Smith's patients weren't sure they'd've gone; we'll see, I'm told, what you're up to. DON'T SHOUT, IT'S RUDE.",
    "'s 't 're 've 'm 'll 'd", "'S 'T 'RE 'VE 'M 'LL 'D", "it's IT'S it\u2019s IT\u2019S", "a'b c'd e'f", "''''", "'", "x'", "'x",
    "rock'n'roll", "o'clock", "'tis the season", "don't can't won't", "I'd've", "a'\u017fb", "'\u017f", "'\u00df", "he'Ll",
]

DIGITS = [
    "0", "1", "12", "123", "1234", "12345", "1234567890", "3.14159265358979", "1,000,000", "2023-10-05T12:34:56Z", "0x1F", "1e-10",
    "007", "50%", "$9.99", "v1.2.3-rc4", "192.168.0.1", "a1b2c3", "1st 2nd 3rd", "x = 10 + 200 * 3000 - 40000", "½ ¼ ²³¹ Ⅳ ⅷ",
    "٠١٢٣٤٥٦٧٨٩", "१२३४", "１２３４", "𝟏𝟐𝟑", "一二三四", "①②③", "12 34  56", "1\n2\n3", "12345678901234567890123456789012345678901234567890",
]

CODE = [
    "def f(x):\n    return x + 1\n", "for (int i = 0; i < n; ++i) {\n\ta[i] = b[i];\n}\n", "if err != nil {\n\t\treturn nil, err\n\t}\n",
    "SELECT * FROM users WHERE id = 42 AND name LIKE '%o''brien%';", "<div class=\"x\">\n  <p>Hi &amp; bye</p>\n</div>",
    "import numpy as np\n\n\nclass A(B):\n    '''doc'''\n    pass\n", "#!/bin/sh\nset -e\necho \"$@\" | sed 's/a/b/g' >> /dev/null\n",
    "{\"key\": [1, 2.5, null, true], \"k2\": {}}", "camelCase snake_case kebab-case SCREAMING_SNAKE PascalCase", "a+b-c*d/e%f^g&h|i~j!k=l<m>n?o:p;q",
    "x->y => z <- w :: ** // /* */ <!-- --> {{ }} [[ ]]", "std::vector<std::pair<int, std::string>>", "\\n \\t \\\\ \\u0041", "https://example.com/a/b?c=d&e=f#g",
    "user.name+tag@example.co.uk", "C:\\Windows\\System32", "    four\n        eight\n\ttab\n", "# comment\n\n\n\n# after", "λx.x+1", "`code` ```go\nx := 1\n```",
    "-- --- ---- -----", "...", "....", "?!?!", "!!!", "(((a)))", "=====\n", "a , b ; c", "\"quoted\" 'single' `back`", "||&&||", "@#$%^&*()_+{}|:\"<>?",
    "end.\n\n  Next", "x\n\n\ty", "x \t y", "\t\t\t", " \t ", "\n\t\n", "{\n\n}", ";\n", ".\r\n", ". \n", ")\n\n\n", "/\n/",
]

EUROPE = [
    "Ça va? Garçon, où est le château?", "Größe über Straße, ÄÖÜ äöü ß ẞ", "El niño comió piñas en España. ¿Qué? ¡Olé!", "Příliš žluťoučký kůň úpěl ďábelské ódy",
    "Zażółć gęślą jaźń", "Ærøskøbing på Ærø", "İstanbul'da ışık ıslak", "ǅ ǈ ǋ ǲ ŉ ŀ", "ﬁne ﬂour ﬀ ﬃ ﬄ ﬅ ﬆ", "Ω Ω Å Å K K", "Ελληνικά γλώσσα Σίσυφος ΣΊΣΥΦΟΣ",
    "Русский язык, ёлка, щука", "Українська їжак ґанок", "Съешь ещё этих мягких французских булок, да выпей чаю", "Българският език", "ქართული ენა", "հայերեն լեզու",
]

COMBINING = [
    "e\u0301", "e\u0301\u0323", "e\u0323\u0301", "cafe\u0301 café", "n\u0303 ñ", "A\u030a Å \u212b", "o\u0302\u0323 o\u0323\u0302 ộ", "\u0301", " \u0301", "a\u0301\u0302\u0303\u0304b",
    "Z\u0351\u036b\u0343\u032a\u0302\u036b\u033d\u034f\u0334\u0319\u0324\u031e\u0349\u035aa\u0329l\u034fg\u0334o\u0489", "\u1e9b\u0323", "ᄀ\u1161\u11a8 각", "\u1100\u1161", "한글 \u1112\u1161\u11ab",
    "q\u0307\u0323", "\u0958 \u0915\u093c", "\u0f73\u0f71\u0f72", "a\u200db\u200cc", "x\u20e3 1\ufe0f\u20e3", "नि क्षि ज्ञ", "ที่นี่ กำ ก\u0e33", "\u0b4b \u0b47\u0b3e",
]

ASIA = [
    "你好，世界！", "今天天气很好，我们去公园散步吧。", "中文English混合text测试123", "こんにちは世界", "カタカナ ｶﾀｶﾅ ひらがな", "吾輩は猫である。名前はまだ無い。", "東京都、ＴＯＫＹＯ　２０２４年", "안녕하세요 세계",
    "나는 학교에 갑니다", "สวัสดีชาวโลก", "ภาษาไทยไม่มีช่องว่าง", "नमस्ते दुनिया", "हिन्दी में लिखा हुआ वाक्य।", "தமிழ் மொழி", "తెలుగు భాష", "বাংলা ভাষা", "ខ្មែរ", "မြန်မာဘာသာ", "ລາວ", "བོད་སྐད", "𠮷野家 𩸽 𪚥", "㍿ ㌔ ㊙ ㈱",
    "。、！？「」『』（）", "　全角　空白　", "𮯰𮯱 extension I",
]

RIGHT_TO_LEFT = [
    "שלום עולם", "עִבְרִית עִם נִקּוּד", "مرحبا بالعالم", "اَلْعَرَبِيَّةُ بِالتَّشْكِيلِ", "سلام دنیا", "اردو زبان", "אבג 123 abc דהו", "\u200fRTL\u200e \u202bmark\u202c \u2067iso\u2069", "ﷺ ﷽", "\u0600123 \u06dd\u0661",
]

EMOJI = [
    "😀", "😀😀😀", "hello 😀 world", "👍🏽", "👨‍👩‍👧‍👦", "👩🏾‍💻 coding", "🏳️‍🌈🏴‍☠️", "🇩🇪🇫🇷🇯🇵", "❤️ ❤ ♥", "🤷🏻‍♂️", "1️⃣2️⃣3️⃣ #️⃣", "☃☺✌️", "🫠🫡🥹🪿🫨", "😀a😀1😀 😀\n😀", "a\u200d🔥", "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f", "🥰 🤔 🦄 🧿",
    "⏰⌛️⚡️", "©®™", "→←↑↓⇒∀∃∈∑∏√∞≠≤≥", "♠♣♥♦", "𝓗𝓮𝓵𝓵𝓸 𝔽𝕣𝕒𝕜𝕥𝕦𝕣", "░▒▓█▄▀■□", "┌─┬─┐│", "• – — … ‰ † ‡ § ¶",
]

ODD_SPACE = [
    "a\u00a0b", "a\u00a0\u00a0b", "\u00a0", " \u00a0 ", "a\u2003b", "a\u2009b\u200ac", "a\u202fb", "a\u205fb", "a\u3000b", "a\u1680b", "a\u180eb", "a\u200bb", "a\ufeffb", "\ufeffBOM", "a\u2028b\u2029c", "a\x85b", "a\x0bb\x0cc", "a\x1cb\x1fc",
    "\x00", "a\x00b", "\x01\x02\x03", "\x7f", "\x1b[31mred\x1b[0m", "a\u2060b", "a\u00adb", "soft\u00adhyphen", "\u2003\u2003x", " \n\u00a0\n x", "\r", "\r\r", "a\rb", "\n\r", "\r\n\r\n", "a \r\n b", "x\u0085\u0085y", "\u3000\n\u3000y", "  \t\n", "\u2028\n", "a \u00a0b",
]

STRANGE = [
    "\ufffd", "a\ufffdb", "\ufffe\uffff", "\U0010ffff", "\ue000\uf8ff", "\ud7ff\ue000", "\U0001f9ff\U000e0001", "Ã©Ã¨Ã", "â\x80\x99", "Â\xa0", "<0x0A><0x41>", "<0xE2><0x96><0x81>", "\u2581", "\u2581hello\u2581world", "a\u2581\u2581b", " \u2581 ",
    "\u0120hello \u010a", "ĠĊĉ", "Ã¤Ã¶Ã¼", "##ing ##s", "hello</w>", "\U0001f600\u0120", "\u1c80\u1c88\ua7ca", "\U00010d4a\U00010d40", "\U00013460\U00013461", "\u0378\u0379", "\u05c1\u0591", "\U0001d173\U0001d17a", "a\u0378b", "\u17b4\u17b5", "\U000e0100", "ª º", "ʰ ˠ", "ǃ ǀ",
    "\u01c5\u0345", "\u1fbc\u0345", "ΐ ΐ", "ﬓ", "\u0149", "\u1e9e", "\u0130\u0131", "\u212a\u017f",
]

SPECIAL = [
    "<s>", "</s>", "<unk>", "<s>hello</s>", "a<s>b", " <s> ", "<s><s>", "</s> after", "<|endoftext|>", "hello<|endoftext|>world", "hello <|endoftext|> world", "<|endoftext|><|endoftext|>\n", "<|begin_of_text|>hi<|eot_id|>",
    "<|start_header_id|>user<|end_header_id|>\n\nHello<|eot_id|>", "<|im_start|>system\nYou are helpful.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n", "<|im_start|", "<|im_start|>", "<|im_start|>>", "<<|im_start|>", "<|reserved_special_token_250|>",
    "<tool_call>\n{\"name\": \"f\"}\n</tool_call>", "<think>\n\n</think>\n\nyes", "<|fim_prefix|>a<|fim_suffix|>b<|fim_middle|>", "<|vision_start|><|image_pad|><|vision_end|>", "[CLS] x [SEP]", "[MASK][MASK]", "<S> <|ENDOFTEXT|>", "<|end", "|>", "<mask> hello <mask>",
    "  <mask>  x", "ab<word>cd", "x <word> y", "xword word wordy word", "Word WORD word.", "caf\u00e9 token", "cafe\u0301 token", "e\u0301<s>e\u0301",
]

LONG = [
    "a" * 100, "ab" * 60, " " * 100, "\n" * 50, "!" * 80, "é" * 50, "漢" * 40, "😀" * 20, "0" * 77, "-" * 33 + ">", "a " * 40, "\u2581" * 20, "=" * 65,
    "antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis", "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft",
    "ACGT" * 30, "lorem ipsum dolor sit amet consectetur adipiscing elit " * 4, "The " + "very " * 30 + "end.", "\u00a0" * 30, "e\u0301" * 30, "xyz" * 20 + " " * 20 + "\n" * 5 + "q",
    "0123456789abcdef" * 6, "🏳️‍🌈" * 8, "<s>" * 10, "中a文b" * 12,
]

CORPUS = PLAIN + DIGITS + CODE + EUROPE + COMBINING + ASIA + RIGHT_TO_LEFT + EMOJI + ODD_SPACE + STRANGE + SPECIAL + LONG
