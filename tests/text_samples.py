# ruff: noqa: RUF001 - Chinese and Japanese punctuation
"""Texts of six kinds to check token estimates with: many, varied, and the same in every run.

English and code are excerpts from Python's own files; the others are generated from seeded choices.
"""

import base64
import json
import random
import sysconfig
from collections.abc import Callable
from pathlib import Path
from pydoc_data import topics
from typing import Any

SOURCES = (
    "_pydecimal.py",
    "argparse.py",
    "ast.py",
    "calendar.py",
    "configparser.py",
    "csv.py",
    "dataclasses.py",
    "difflib.py",
    "fractions.py",
    "inspect.py",
    "ipaddress.py",
    "json/decoder.py",
    "mailbox.py",
    "pickle.py",
    "shutil.py",
    "statistics.py",
    "tarfile.py",
    "textwrap.py",
    "tokenize.py",
    "urllib/request.py",
)
CHINESE_WHO = [
    "我",
    "我们",
    "他们",
    "老师",
    "工程师",
    "这位客户",
    "市政府",
    "研究人员",
    "孩子们",
    "那家公司",
    "北京的朋友",
    "邻居",
    "医生",
    "作者",
    "程序员",
    "售票员",
    "考古学家",
    "乘客",
    "摄影爱好者",
    "值班经理",
]
CHINESE_WHEN = [
    "昨天",
    "今天早上",
    "去年冬天",
    "下个星期三",
    "目前",
    "不久以后",
    "二十世纪末",
    "每逢周末",
    "在会议上",
    "雨停之后",
    "傍晚时分",
    "航班取消以后",
    "考试前夕",
    "此刻",
    "多年来",
]
CHINESE_DOES = [
    "讨论了",
    "修改了",
    "发现了",
    "仔细检查",
    "忘记了",
    "重新设计",
    "拒绝",
    "购买了",
    "翻译了",
    "正在准备",
    "打算出售",
    "怀念",
    "公布了",
    "测量了",
    "反复强调",
    "修复",
    "整理",
    "解释",
    "质疑",
    "收藏了",
]
CHINESE_WHAT = [
    "新的计划",
    "图书馆里的旧报纸",
    "数据库的索引",
    "一杯热茶",
    "这条河流的历史",
    "发动机的噪音",
    "退款申请",
    "窗外的风景",
    "复杂的算法",
    "孩子的作业",
    "机票价格",
    "传统的面食",
    "量子力学的基本概念",
    "合同第三条",
    "缓存失效的原因",
    "桂花的香味",
    "城市交通拥堵问题",
    "古代瓷器",
    "软件漏洞",
    "天气预报",
    "诗歌",
    "蝴蝶标本",
    "财务报表",
]
CHINESE_MORE = [
    "但是结果并不令人满意",
    "因此需要更多时间",
    "大家都感到惊讶",
    "并且记录了每一个细节",
    "费用由双方承担",
    "据说与温度有关",
    "请您确认以下信息",
    "最后决定推迟",
    "然而没有人回答",
    "这让问题变得更加清楚",
]
JAPANESE_WHO = [
    "私は",
    "先生が",
    "彼女は",
    "お客様が",
    "開発チームは",
    "祖母は",
    "あの会社は",
    "駅員が",
    "研究者たちは",
    "友だちの田中さんが",
    "子どもたちは",
    "編集者は",
    "市役所の担当者が",
    "猫が",
    "エンジニアは",
]
JAPANESE_WHEN = [
    "昨日",
    "けさ",
    "来週の水曜日に",
    "三年前から",
    "会議のあとで",
    "雨が降り出したころ",
    "さっき",
    "夏休みのあいだ",
    "締め切りの前に",
    "夜遅くまで",
    "いつも",
    "二〇二五年の春に",
]
JAPANESE_WHAT = [
    "新しい計画を",
    "データベースの設計を",
    "古い写真を",
    "予約の変更を",
    "カレーライスを",
    "窓の外の景色を",
    "この問題の原因を",
    "英語の論文を",
    "キャッシュの仕組みを",
    "手紙を",
    "荷物の重さを",
    "ソフトウェアの不具合を",
    "お茶を",
    "電車の時刻表を",
    "ユーザーインターフェースを",
    "桜の花を",
]
JAPANESE_DOES = [
    "確認しました。",
    "考えています。",
    "忘れてしまった。",
    "もう一度調べてください。",
    "楽しみにしている。",
    "説明してくれませんか？",
    "直すつもりです。",
    "見つけたそうです。",
    "断りました。",
    "ゆっくり味わった。",
    "送っておきます。",
    "すっかり変えてしまいました。",
    "うまく伝えられなかった。",
]
JAPANESE_MORE = [
    "しかし、結果はまだ分からない。",
    "ありがとうございます。",
    "それでも少しずつよくなっている。",
    "たとえば、次のような場合です。",
    "詳しくは担当者までお問い合わせください。",
    "なるほど、そうですか。",
    "もちろん無料です。",
    "ただし、例外もある。",
]


def passage(text: str, chance: random.Random) -> str:
    """Return an excerpt of 250 to 2,500 characters."""
    length = chance.randint(250, 2500)
    start = chance.randrange(max(1, len(text) - length))
    return text[start : start + length]


def english(chance: random.Random) -> str:
    names = sorted(name for name, text in topics.topics.items() if len(text) > 3000)
    return passage(topics.topics[chance.choice(names)], chance)


def code(chance: random.Random) -> str:
    source = Path(sysconfig.get_path("stdlib")) / chance.choice(SOURCES)
    return passage(source.read_text(encoding="utf-8"), chance)


def chinese(chance: random.Random) -> str:
    def sentence() -> str:
        parts = (CHINESE_WHEN, CHINESE_WHO, CHINESE_DOES, CHINESE_WHAT)
        clause = "".join(chance.choice(words) for words in parts)
        return f"{clause}，{chance.choice(CHINESE_MORE)}{chance.choice('。。。！？；')}"

    return "".join(sentence() for _ in range(chance.randint(5, 60)))


def japanese(chance: random.Random) -> str:
    def sentence() -> str:
        parts = (JAPANESE_WHEN, JAPANESE_WHO, JAPANESE_WHAT, JAPANESE_DOES)
        clause = "".join(chance.choice(words) for words in parts)
        return clause + (chance.choice(JAPANESE_MORE) if chance.random() < 0.5 else "")

    return "".join(sentence() for _ in range(chance.randint(5, 50)))


def tool_result(chance: random.Random) -> str:
    """Return a JSON list of records, compact or indented, as tools do."""
    records = [_record(chance) for _ in range(chance.randint(1, 12))]
    indent = chance.choice((None, None, 2))
    return json.dumps({"results": records, "next": None}, indent=indent)


def _record(chance: random.Random) -> dict[str, Any]:
    month, day, hour = chance.randint(1, 12), chance.randint(1, 28), chance.randint(0, 23)
    return {
        "reservation_id": "".join(chance.choices("ABCDEFGHJKLMNPQRSTUVWXYZ0123456789", k=6)),
        "uuid": f"{chance.getrandbits(128):032x}",
        "user": {
            "first_name": chance.choice(("Mei", "Olivia", "Raj", "Yusuf", "Sofia", "Ethan")),
            "email": f"{chance.choice('abcde')}.wong{chance.randint(1, 9999)}@mail.example",
        },
        "origin": chance.choice(("JFK", "SEA", "PHX", "LAX", "ORD", "MIA")),
        "departs_at": f"2024-{month:02}-{day:02}T{hour:02}:{chance.randint(0, 59):02}:00Z",
        "price": round(chance.uniform(20, 2000), 2),
        "seats": {"basic_economy": chance.randint(0, 20), "business": chance.randint(0, 9)},
        "insured": chance.choice((True, False, None)),
        "tags": chance.sample(["window", "aisle", "vegetarian", "wheelchair", "late"], k=2),
    }


def encoded(chance: random.Random) -> str:
    return base64.b64encode(chance.randbytes(chance.randint(200, 2000))).decode()


KINDS: dict[str, Callable[[random.Random], str]] = {
    "base64": encoded,
    "chinese": chinese,
    "code": code,
    "english": english,
    "japanese": japanese,
    "json": tool_result,
}


def samples(kind: str, count: int) -> list[str]:
    """Return texts of a kind, the same in every run."""
    # Seeded; not used for security.
    chances = (random.Random(f"{kind} {number}") for number in range(count))  # noqa: S311
    return [KINDS[kind](chance) for chance in chances]
