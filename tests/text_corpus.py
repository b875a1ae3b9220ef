# ruff: noqa: E501, RUF001 - sentences and code of many languages
"""Texts of many kinds and any length to check token estimates with: prose, code, data and runs.

`CORPUS` maps the name of a kind to a function that generates a text. Choices are seeded, so every
run has the same texts.
"""

import base64
import json
import random
import string
from collections.abc import Callable, Sequence

Make = Callable[[random.Random, int], str]

PROSE = {
    "arabic": (
        "وصل القطار متأخرا بسبب الأمطار الغزيرة التي هطلت طوال الليل.",
        "تعمل أختي مهندسة في شركة صغيرة تصنع أجهزة لقياس جودة المياه.",
        "هل يمكنك أن تشرح لي كيف تعمل هذه الدالة ولماذا تعيد قيمة فارغة؟",
        "قرأت بالأمس كتابا عن تاريخ المدن القديمة على ضفاف النهر.",
        "يجب أن نرسل التقرير قبل نهاية الأسبوع، وإلا فسوف يتأخر المشروع كله.",
        "السوق مزدحم في الصباح، ولكن الأسعار تنخفض عادة بعد الظهر.",
        "قال الطبيب إن الراحة والماء الكثير هما أفضل علاج في هذه الحالة.",
        "لم يجد الباحثون سببا واضحا للخطأ، فأعادوا التجربة ثلاث مرات.",
    ),
    "chinese": (
        "昨天晚上下了一场大雨，火车晚点了将近两个小时。",
        "我姐姐在一家生产水质检测设备的小公司当工程师。",
        "你能解释一下这个函数是怎么工作的，为什么会返回空值吗？",
        "图书馆三楼新开了一间阅览室，周末也对外开放。",
        "如果报告不能在周五之前交上去，整个项目就要推迟。",
        "早上的市场非常拥挤，不过下午价格通常会便宜一些。",
        "医生说多休息、多喝水，过几天就会好起来的。",
        "研究人员没有找到明确的原因，于是把实验重复了三遍。",
    ),
    "english": (
        "The train was late because heavy rain had fallen all through the night.",
        "My sister is an engineer at a small company that builds instruments for water quality.",
        "Could you explain how this function works and why it returns an empty value?",
        "Yesterday I read a book about the history of the old towns along the river.",
        "We have to send the report before the end of the week, or the whole project will slip.",
        "The market is crowded in the morning, but prices usually drop in the afternoon.",
        "The doctor said that rest and plenty of water are the best treatment in this case.",
        "The researchers found no obvious reason for the error and repeated the experiment three times.",
    ),
    "finnish": (
        "Juna oli myöhässä, koska koko yön oli satanut rankasti.",
        "Siskoni työskentelee insinöörinä pienessä yrityksessä, joka valmistaa vedenlaadun mittauslaitteita.",
        "Voisitko selittää, miten tämä funktio toimii ja miksi se palauttaa tyhjän arvon?",
        "Luin eilen kirjan jokivarren vanhojen kaupunkien historiasta.",
        "Raportti on lähetettävä ennen viikon loppua, muuten koko hanke viivästyy.",
        "Tori on aamulla täynnä väkeä, mutta iltapäivällä hinnat yleensä laskevat.",
        "Lääkärin mukaan lepo ja runsas veden juominen ovat tässä tapauksessa paras hoito.",
        "Tutkijat eivät löytäneet virheelle selvää syytä ja toistivat kokeen kolmesti.",
    ),
    "french": (
        "Le train avait du retard à cause des fortes pluies tombées pendant la nuit.",
        "Ma sœur est ingénieure dans une petite entreprise qui fabrique des appareils de mesure de la qualité de l'eau.",
        "Pourriez-vous m'expliquer comment fonctionne cette fonction et pourquoi elle renvoie une valeur vide ?",
        "Hier, j'ai lu un livre sur l'histoire des vieilles villes au bord du fleuve.",
        "Nous devons envoyer le rapport avant la fin de la semaine, sinon tout le projet prendra du retard.",
        "Le marché est bondé le matin, mais les prix baissent en général l'après-midi.",
        "D'après le médecin, le repos et beaucoup d'eau restent le meilleur traitement.",
        "Les chercheurs n'ont trouvé aucune cause évidente à l'erreur et ont répété l'expérience trois fois.",
    ),
    "german": (
        "Der Zug hatte Verspätung, weil es die ganze Nacht über stark geregnet hatte.",
        "Meine Schwester arbeitet als Ingenieurin in einem kleinen Unternehmen, das Messgeräte für die Wasserqualität herstellt.",
        "Könntest du mir erklären, wie diese Funktion arbeitet und warum sie einen leeren Wert zurückgibt?",
        "Die Geschwindigkeitsbegrenzung auf der Umgehungsstraße wurde nach einer Anwohnerversammlung wieder aufgehoben.",
        "Wir müssen den Bericht vor dem Wochenende abschicken, sonst verzögert sich das gesamte Vorhaben.",
        "Vormittags ist der Markt überfüllt, nachmittags sinken die Preise gewöhnlich etwas.",
        "Die Krankenversicherungsbeiträge werden zum Jahreswechsel voraussichtlich leicht erhöht.",
        "Die Forscherinnen fanden keine offensichtliche Ursache für den Fehler und wiederholten den Versuch dreimal.",
    ),
    "greek": (
        "Το τρένο είχε καθυστέρηση, επειδή έβρεχε δυνατά όλη τη νύχτα.",
        "Η αδελφή μου είναι μηχανικός σε μια μικρή εταιρεία που κατασκευάζει όργανα μέτρησης της ποιότητας του νερού.",
        "Μπορείς να μου εξηγήσεις πώς λειτουργεί αυτή η συνάρτηση και γιατί επιστρέφει κενή τιμή;",
        "Χθες διάβασα ένα βιβλίο για την ιστορία των παλιών πόλεων κατά μήκος του ποταμού.",
        "Πρέπει να στείλουμε την αναφορά πριν από το τέλος της εβδομάδας, αλλιώς θα καθυστερήσει όλο το έργο.",
        "Το πρωί η αγορά είναι γεμάτη κόσμο, αλλά το απόγευμα οι τιμές συνήθως πέφτουν.",
        "Ο γιατρός είπε ότι η ξεκούραση και το άφθονο νερό είναι η καλύτερη θεραπεία.",
        "Οι ερευνητές δεν βρήκαν προφανή αιτία για το σφάλμα και επανέλαβαν το πείραμα τρεις φορές.",
    ),
    "hebrew": (
        "הרכבת איחרה כי ירד גשם כבד במשך כל הלילה.",
        "אחותי עובדת כמהנדסת בחברה קטנה שמייצרת מכשירים למדידת איכות המים.",
        "תוכל להסביר לי איך הפונקציה הזאת עובדת ולמה היא מחזירה ערך ריק?",
        "אתמול קראתי ספר על ההיסטוריה של הערים העתיקות לאורך הנהר.",
        "אנחנו חייבים לשלוח את הדוח לפני סוף השבוע, אחרת כל הפרויקט יתעכב.",
        "בבוקר השוק צפוף, אבל אחר הצהריים המחירים בדרך כלל יורדים.",
        "הרופא אמר שמנוחה והרבה מים הם הטיפול הטוב ביותר במקרה הזה.",
        "החוקרים לא מצאו סיבה ברורה לשגיאה וחזרו על הניסוי שלוש פעמים.",
    ),
    "hindi": (
        "रात भर हुई तेज़ बारिश के कारण ट्रेन देर से पहुँची।",
        "मेरी बहन एक छोटी कंपनी में इंजीनियर है जो पानी की गुणवत्ता मापने के उपकरण बनाती है।",
        "क्या आप समझा सकते हैं कि यह फ़ंक्शन कैसे काम करता है और खाली मान क्यों लौटाता है?",
        "कल मैंने नदी के किनारे बसे पुराने शहरों के इतिहास पर एक किताब पढ़ी।",
        "हमें सप्ताह के अंत से पहले रिपोर्ट भेजनी होगी, नहीं तो पूरी परियोजना में देरी होगी।",
        "सुबह बाज़ार में बहुत भीड़ रहती है, लेकिन दोपहर में दाम अक्सर कम हो जाते हैं।",
        "डॉक्टर ने कहा कि आराम करना और खूब पानी पीना ही सबसे अच्छा इलाज है।",
        "शोधकर्ताओं को गलती का कोई स्पष्ट कारण नहीं मिला और उन्होंने प्रयोग तीन बार दोहराया।",
    ),
    "japanese": (
        "一晩中激しい雨が降ったため、電車が二時間近く遅れました。",
        "姉は水質を測定する装置を作る小さな会社でエンジニアとして働いています。",
        "この関数がどのように動くのか、なぜ空の値を返すのか説明していただけますか。",
        "きのう、川沿いの古い町の歴史についての本を読みました。",
        "週末までにレポートを送らないと、プロジェクト全体が遅れてしまいます。",
        "朝の市場は混んでいますが、午後になるとたいてい値段が下がります。",
        "お医者さんは、よく休んで水をたくさん飲むのがいちばんだと言っていました。",
        "研究者たちははっきりした原因を見つけられず、実験を三回くり返した。",
    ),
    "korean": (
        "밤새 내린 폭우 때문에 기차가 두 시간 가까이 늦게 도착했습니다.",
        "언니는 수질을 측정하는 장비를 만드는 작은 회사에서 엔지니어로 일합니다.",
        "이 함수가 어떻게 동작하는지, 왜 빈 값을 돌려주는지 설명해 주시겠어요?",
        "어제 강가에 있는 오래된 도시들의 역사에 관한 책을 읽었습니다.",
        "이번 주 안에 보고서를 보내지 않으면 프로젝트 전체가 늦어질 것입니다.",
        "아침에는 시장이 붐비지만 오후가 되면 보통 값이 내려갑니다.",
        "의사는 푹 쉬고 물을 많이 마시는 것이 가장 좋은 치료라고 말했습니다.",
        "연구자들은 오류의 뚜렷한 원인을 찾지 못해 실험을 세 번 반복했다.",
    ),
    "polish": (
        "Pociąg spóźnił się, ponieważ przez całą noc padał ulewny deszcz.",
        "Moja siostra jest inżynierem w małej firmie, która produkuje przyrządy do pomiaru jakości wody.",
        "Czy możesz wyjaśnić, jak działa ta funkcja i dlaczego zwraca pustą wartość?",
        "Wczoraj przeczytałem książkę o historii starych miast położonych nad rzeką.",
        "Musimy wysłać sprawozdanie przed końcem tygodnia, inaczej opóźni się całe przedsięwzięcie.",
        "Rano na targu panuje tłok, ale po południu ceny zwykle spadają.",
        "Lekarz powiedział, że odpoczynek i dużo wody to w tym przypadku najlepsze leczenie.",
        "Badacze nie znaleźli oczywistej przyczyny błędu i powtórzyli doświadczenie trzykrotnie.",
    ),
    "russian": (
        "Поезд опоздал почти на два часа, потому что всю ночь шёл сильный дождь.",
        "Моя сестра работает инженером в небольшой компании, которая делает приборы для измерения качества воды.",
        "Не могли бы вы объяснить, как работает эта функция и почему она возвращает пустое значение?",
        "Вчера я прочитал книгу об истории старых городов на берегу реки.",
        "Мы должны отправить отчёт до конца недели, иначе задержится весь проект.",
        "Утром на рынке многолюдно, но после обеда цены обычно снижаются.",
        "Врач сказал, что отдых и обильное питьё в этом случае лучше любого лекарства.",
        "Исследователи не нашли очевидной причины ошибки и повторили опыт трижды.",
    ),
    "spanish": (
        "El tren llegó tarde porque había llovido con fuerza durante toda la noche.",
        "Mi hermana es ingeniera en una pequeña empresa que fabrica instrumentos para medir la calidad del agua.",
        "¿Podrías explicarme cómo funciona esta función y por qué devuelve un valor vacío?",
        "Ayer leí un libro sobre la historia de las antiguas ciudades a orillas del río.",
        "Tenemos que enviar el informe antes del fin de semana o se retrasará todo el proyecto.",
        "Por la mañana el mercado está lleno, pero por la tarde los precios suelen bajar.",
        "El médico dijo que el descanso y mucha agua son el mejor tratamiento en este caso.",
        "Los investigadores no encontraron una causa evidente del error y repitieron el experimento tres veces.",
    ),
    "thai": (
        "รถไฟมาช้าเกือบสองชั่วโมงเพราะฝนตกหนักตลอดทั้งคืน",
        "พี่สาวของฉันเป็นวิศวกรในบริษัทเล็ก ๆ ที่ผลิตเครื่องมือวัดคุณภาพน้ำ",
        "ช่วยอธิบายหน่อยได้ไหมว่าฟังก์ชันนี้ทำงานอย่างไรและทำไมจึงคืนค่าว่าง",
        "เมื่อวานฉันอ่านหนังสือเกี่ยวกับประวัติศาสตร์ของเมืองเก่าริมแม่น้ำ",
        "เราต้องส่งรายงานก่อนสิ้นสัปดาห์ ไม่อย่างนั้นโครงการทั้งหมดจะล่าช้า",
        "ตอนเช้าตลาดคนแน่นมาก แต่ตอนบ่ายราคามักจะลดลง",
        "หมอบอกว่าการพักผ่อนและดื่มน้ำมาก ๆ เป็นการรักษาที่ดีที่สุด",
        "นักวิจัยไม่พบสาเหตุที่ชัดเจนของข้อผิดพลาดจึงทำการทดลองซ้ำสามครั้ง",
    ),
    "turkish": (
        "Bütün gece şiddetli yağmur yağdığı için tren yaklaşık iki saat gecikti.",
        "Kız kardeşim su kalitesini ölçen cihazlar üreten küçük bir şirkette mühendis olarak çalışıyor.",
        "Bu fonksiyonun nasıl çalıştığını ve neden boş bir değer döndürdüğünü açıklayabilir misiniz?",
        "Dün nehir kıyısındaki eski şehirlerin tarihi hakkında bir kitap okudum.",
        "Raporu hafta sonundan önce göndermeliyiz, yoksa bütün proje gecikecek.",
        "Sabahları pazar kalabalıktır, ama öğleden sonra fiyatlar genellikle düşer.",
        "Doktor, dinlenmenin ve bol su içmenin bu durumda en iyi tedavi olduğunu söyledi.",
        "Araştırmacılar hatanın belirgin bir nedenini bulamadılar ve deneyi üç kez tekrarladılar.",
    ),
    "vietnamese": (
        "Tàu đến muộn gần hai tiếng vì mưa to suốt cả đêm.",
        "Chị tôi là kỹ sư ở một công ty nhỏ chuyên sản xuất thiết bị đo chất lượng nước.",
        "Bạn có thể giải thích hàm này hoạt động thế nào và tại sao nó trả về giá trị rỗng không?",
        "Hôm qua tôi đọc một cuốn sách về lịch sử những thành phố cổ bên bờ sông.",
        "Chúng ta phải gửi báo cáo trước cuối tuần, nếu không cả dự án sẽ bị chậm.",
        "Buổi sáng chợ rất đông, nhưng buổi chiều giá thường giảm xuống.",
        "Bác sĩ nói rằng nghỉ ngơi và uống nhiều nước là cách điều trị tốt nhất.",
        "Các nhà nghiên cứu không tìm thấy nguyên nhân rõ ràng nên đã lặp lại thí nghiệm ba lần.",
    ),
}
CODE = {
    "c": r"""
static int
read_header(struct reader *r, uint8_t *buf, size_t len)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = read(r->fd, buf + done, len - done);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -1;
		done += (size_t)n;
	}
	if (memcmp(buf, MAGIC, sizeof(MAGIC)) != 0) {
		fprintf(stderr, "%s: bad magic 0x%02x\n", r->path, buf[0]);
		return -EINVAL;
	}
	r->version = (buf[4] << 8) | buf[5];
	return r->version > MAX_VERSION ? -ENOTSUP : 0;
}
""",
    "css": r"""
.toolbar > .button:not(:disabled):hover {
  background-color: rgba(12, 99, 231, 0.15);
  border-radius: 4px;
  transition: background-color 120ms ease-in-out;
}
@media (max-width: 640px) {
  .sidebar { display: none; }
  main { padding: 0 1rem; font-size: 0.95rem; }
}
:root { --accent: #0c63e7; --muted: #6b7280; --shadow: 0 1px 2px rgb(0 0 0 / 10%); }
""",
    "go": r"""
func (s *Server) handleUpload(w http.ResponseWriter, req *http.Request) {
	ctx, cancel := context.WithTimeout(req.Context(), 30*time.Second)
	defer cancel()
	file, header, err := req.FormFile("upload")
	if err != nil {
		http.Error(w, fmt.Sprintf("cannot read upload: %v", err), http.StatusBadRequest)
		return
	}
	defer file.Close()
	for i, chunk := range splitChunks(header.Size, chunkSize) {
		if err := s.store.Put(ctx, header.Filename, i, chunk); err != nil {
			s.log.Warn("put failed", "chunk", i, "err", err)
			continue
		}
	}
	w.WriteHeader(http.StatusCreated)
}
""",
    "html": r"""
<section class="card" id="pricing">
  <h2>Plans &amp; pricing</h2>
  <ul>
    <li><a href="/plans/basic?ref=home">Basic</a> <span class="price">$9</span></li>
    <li><a href="/plans/team?ref=home">Team</a> <span class="price">$29</span></li>
  </ul>
  <form method="post" action="/subscribe">
    <input type="email" name="email" placeholder="you@example.com" required>
    <button type="submit" data-track="subscribe">Subscribe</button>
  </form>
</section>
""",
    "java": r"""
public final class AccountRepository implements Repository<Account, UUID> {
    private final DataSource dataSource;

    @Override
    public Optional<Account> findById(UUID id) throws SQLException {
        try (Connection connection = dataSource.getConnection();
                PreparedStatement statement = connection.prepareStatement(SELECT_BY_ID)) {
            statement.setObject(1, id);
            ResultSet rows = statement.executeQuery();
            return rows.next() ? Optional.of(mapRow(rows)) : Optional.empty();
        }
    }

    private static Account mapRow(ResultSet rows) throws SQLException {
        return new Account(rows.getObject("id", UUID.class), rows.getString("display_name"));
    }
}
""",
    "javascript": r"""
export async function fetchOrders(customerId, { page = 1, signal } = {}) {
  const response = await fetch(`/api/customers/${customerId}/orders?page=${page}`, { signal });
  if (!response.ok) {
    throw new Error(`Request failed with status ${response.status}`);
  }
  const { items, nextPage } = await response.json();
  return {
    nextPage,
    items: items.map((item) => ({ ...item, total: item.price * item.quantity })),
  };
}

const cache = new Map();
document.querySelectorAll('[data-order]').forEach((element) => {
  element.addEventListener('click', (event) => onSelect(event.target.dataset.order));
});
""",
    "python": r"""
class RetryPolicy:
    def __init__(self, *, attempts: int = 3, base_delay: float = 0.25) -> None:
        self._attempts = attempts
        self._base_delay = base_delay

    async def run(self, operation: Callable[[], Awaitable[T]]) -> T:
        for attempt in range(1, self._attempts + 1):
            try:
                return await operation()
            except (TimeoutError, ConnectionError) as error:
                if attempt == self._attempts:
                    raise
                logger.warning("attempt %d failed: %s", attempt, error)
                await asyncio.sleep(self._base_delay * 2 ** attempt)
        raise AssertionError("unreachable")
""",
    "rust": r"""
impl<R: BufRead> Iterator for RecordReader<R> {
    type Item = Result<Record, ParseError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.line.clear();
        match self.inner.read_line(&mut self.line) {
            Ok(0) => None,
            Ok(_) => Some(self.line.trim_end().parse::<Record>().map_err(|source| {
                ParseError::Line { number: self.number, source }
            })),
            Err(err) => Some(Err(ParseError::Io(err))),
        }
    }
}
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Shape { Circle { radius: u32 }, Rect { width: u32, height: u32 } }
""",
    "shell": r"""
set -euo pipefail
for file in "$HOME"/backups/*.tar.gz; do
  name=$(basename "$file" .tar.gz)
  if [[ ! -d "/var/restore/$name" ]]; then
    mkdir -p "/var/restore/$name" && tar -xzf "$file" -C "/var/restore/$name" || exit 1
  fi
done
find . -type f -name '*.log' -mtime +30 -print0 | xargs -0 -r rm --
curl -fsSL --retry 3 "https://example.com/api/v2/status?format=json" | jq -r '.services[] | select(.up == false) | .name'
""",
    "sql": r"""
SELECT c.id, c.display_name, COUNT(o.id) AS orders, SUM(o.total_cents) / 100.0 AS revenue
FROM customers AS c
LEFT JOIN orders AS o ON o.customer_id = c.id AND o.created_at >= '2024-01-01'
WHERE c.deleted_at IS NULL AND c.country_code IN ('DE', 'FR', 'JP')
GROUP BY c.id, c.display_name
HAVING COUNT(o.id) > 3
ORDER BY revenue DESC NULLS LAST
LIMIT 50;
CREATE INDEX CONCURRENTLY idx_orders_customer ON orders (customer_id, created_at DESC);
""",
    "minified javascript": (
        '!function(e,t){"object"==typeof exports&&"undefined"!=typeof module?module.exports=t():'
        '"function"==typeof define&&define.amd?define(t):(e=e||self).App=t()}(this,function(){"use strict";'
        "var n=Object.prototype.hasOwnProperty;function r(e,t){for(var r in t)n.call(t,r)&&(e[r]=t[r]);return e}"
        "function o(e){return null==e?void 0:e.length>0?e.reduce((e,t)=>e+t.value,0)/e.length:NaN}"
        "var i=[],a=!1,u=0;function c(e){i.push(e),a||(a=!0,setTimeout(s,0))}function s(){for(;u<i.length;)i[u++]();"
        'i=[],u=0,a=!1}return{extend:r,mean:o,defer:c,version:"2.14.3",sort:function(e){return e.slice().sort('
        "function(e,t){return e<t?-1:e>t?1:0})}}});"
    ),
}
WORDS = [
    "account",
    "address",
    "amount",
    "balance",
    "branch",
    "buffer",
    "cache",
    "channel",
    "client",
    "column",
    "command",
    "config",
    "context",
    "count",
    "cursor",
    "database",
    "default",
    "delete",
    "device",
    "document",
    "element",
    "engine",
    "entry",
    "error",
    "event",
    "export",
    "factory",
    "field",
    "file",
    "filter",
    "folder",
    "format",
    "function",
    "group",
    "handler",
    "header",
    "image",
    "index",
    "input",
    "insert",
    "invoice",
    "item",
    "journal",
    "key",
    "label",
    "language",
    "layout",
    "ledger",
    "length",
    "level",
    "limit",
    "list",
    "manager",
    "message",
    "method",
    "model",
    "module",
    "name",
    "network",
    "node",
    "number",
    "object",
    "offset",
    "option",
    "order",
    "output",
    "package",
    "page",
    "parser",
    "path",
    "pattern",
    "payment",
    "pixel",
    "policy",
    "product",
    "profile",
    "provider",
    "query",
    "queue",
    "reader",
    "record",
    "region",
    "report",
    "request",
    "resource",
    "response",
    "result",
    "route",
    "row",
    "rule",
    "schema",
    "score",
    "search",
    "section",
    "sequence",
    "server",
    "session",
    "setting",
    "shape",
    "source",
    "stack",
    "state",
    "status",
    "storage",
    "stream",
    "string",
    "summary",
    "symbol",
    "table",
    "target",
    "task",
    "template",
    "thread",
    "ticket",
    "token",
    "total",
    "transfer",
    "update",
    "user",
    "value",
    "vector",
    "version",
    "view",
    "window",
    "worker",
]
EMOJI = "😀😂🥰😎🤔😭🙏👍🔥🎉✨💡🚀✅❌⚠️📌🐛🌍🍕🐍🏆🦊🧪🪐🫠"
JOINED = ("👩‍💻", "👨‍👩‍👧‍👦", "🏳️‍🌈", "🧑🏽‍🚀", "👩🏿‍🔬", "🤷🏻‍♀️", "🐻‍❄️", "👍🏼")
FLAGS = ("🇩🇪", "🇫🇷", "🇯🇵", "🇧🇷", "🇮🇳", "🇹🇷", "🇬🇷", "🇰🇷", "🇺🇸", "🇺🇦")


def _fill(length: int, piece: Callable[[], str], separator: str = "") -> str:
    """Return exactly this many characters of concatenated pieces."""
    parts: list[str] = []
    size = 0
    while size < length + len(separator):
        parts.append(piece())
        size += len(parts[-1]) + len(separator)
    return separator.join(parts)[:length]


def _prose(sentences: Sequence[str], separator: str = " ") -> Make:
    return lambda chance, length: _fill(length, lambda: chance.choice(sentences), separator)


def _passages(source: str) -> Make:
    """Repeat a program, from a random character on."""

    def make(chance: random.Random, length: int) -> str:
        start = chance.randrange(len(source))
        repeated = source[start:] + source * (length // len(source) + 1)
        return repeated[:length]

    return make


def _sample(characters: str) -> Make:
    return lambda chance, length: "".join(chance.choices(characters, k=length))


def _run(characters: str) -> Make:
    """Repeat one character or a few alternating characters."""
    return lambda _, length: (characters * length)[:length]


def _words(style: Callable[[list[str]], str], separator: str) -> Make:
    def make(chance: random.Random, length: int) -> str:
        return _fill(
            length, lambda: style(chance.choices(WORDS, k=chance.randint(2, 4))), separator
        )

    return make


def _record(chance: random.Random) -> dict[str, object]:
    return {
        "id": chance.randrange(10**6),
        "name": " ".join(chance.choices(WORDS, k=2)),
        "created_at": f"2024-{chance.randint(1, 12):02}-{chance.randint(1, 28):02}T08:15:00Z",
        "amount": round(chance.uniform(0, 500), 2),
        "active": chance.choice((True, False, None)),
        "tags": chance.sample(WORDS, k=3),
        "owner": {"uuid": f"{chance.getrandbits(128):032x}", "score": chance.random()},
    }


def _json(indent: int | None, separators: tuple[str, str] | None = None) -> Make:
    def make(chance: random.Random, length: int) -> str:
        records = [_record(chance) for _ in range(length // 100 + 1)]
        return json.dumps(records, indent=indent, separators=separators)[:length]

    return make


def _csv(separator: str) -> Make:
    def row(chance: random.Random) -> str:
        fields = (
            str(chance.randrange(10**5)),
            chance.choice(WORDS),
            chance.choice(WORDS).title(),
            f"{chance.uniform(0, 1000):.2f}",
            f"2023-{chance.randint(1, 12):02}-{chance.randint(1, 28):02}",
            chance.choice(("yes", "no", "")),
        )
        return separator.join(fields)

    return lambda chance, length: _fill(length, lambda: row(chance), "\n")


def _table(chance: random.Random, length: int) -> str:
    def row() -> str:
        return "".join(f"{chance.uniform(-1000, 1000):12.4f}" for _ in range(6))

    return _fill(length, row, "\n")


def _url(chance: random.Random) -> str:
    path = "/".join(chance.choices(WORDS, k=3))
    query = f"{chance.choice(WORDS)}={chance.randrange(10**8)}&ref={chance.getrandbits(40):x}"
    return f"https://{chance.choice(WORDS)}.example.com/{path}/?{query}#{chance.choice(WORDS)}"


def _log(chance: random.Random, length: int) -> str:
    def line() -> str:
        clock = f"2024-05-{chance.randint(1, 28):02} 12:{chance.randint(10, 59)}:07,{chance.randint(100, 999)}"
        address = ".".join(str(chance.randrange(256)) for _ in range(4))
        return f"{clock} INFO [{chance.choice(WORDS)}.{chance.choice(WORDS)}] {address} GET /{chance.choice(WORDS)} 200 {chance.randrange(10**5)}"

    return _fill(length, line, "\n")


def _markdown(chance: random.Random, length: int) -> str:
    def block() -> str:
        sentence = chance.choice(PROSE["english"])
        cells = " | ".join(chance.choices(WORDS, k=3))
        return (
            f"## {chance.choice(WORDS).title()} {chance.choice(WORDS)}\n\n{sentence}\n\n"
            f"- **{chance.choice(WORDS)}**: `{chance.choice(WORDS)}()`\n\n"
            f"| {cells} |\n|-----|-----|-----|\n\n{'-' * 60}\n"
        )

    return _fill(length, block, "\n")


CORPUS: dict[str, Make] = {
    **{f"prose: {name}": _prose(sentences) for name, sentences in PROSE.items()},
    "prose: chinese without spaces": _prose(PROSE["chinese"], ""),
    "prose: japanese without spaces": _prose(PROSE["japanese"], ""),
    "prose: english in capitals": _prose([one.upper() for one in PROSE["english"]]),
    "prose: english in title case": _prose([one.title() for one in PROSE["english"]]),
    "prose: german in capitals": _prose([one.upper() for one in PROSE["german"]]),
    "prose: russian in capitals": _prose([one.upper() for one in PROSE["russian"]]),
    "prose: english, a line each": _prose(PROSE["english"], "\n\n"),
    "prose: english without spaces": _prose([one.replace(" ", "") for one in PROSE["english"]], ""),
    **{f"code: {name}": _passages(source) for name, source in CODE.items()},
    "code: python, indented by 40": _passages(CODE["python"].replace("\n", "\n" + " " * 40)),
    "code: c with CRLF": _passages(CODE["c"].replace("\n", "\r\n")),
    "words: camelCase": _words(lambda w: w[0] + "".join(one.title() for one in w[1:]), " "),
    "words: CamelCase": _words(lambda w: "".join(one.title() for one in w), "\n"),
    "words: snake_case": _words("_".join, " "),
    "words: SCREAMING_CASE": _words(lambda w: "_".join(w).upper(), ", "),
    "words: kebab-case": _words("-".join, "\n"),
    "words: joined": _words("".join, ""),
    "data: base64": lambda chance, length: base64.b64encode(chance.randbytes(length))[
        :length
    ].decode(),
    "data: base64 in lines": lambda chance, length: base64.encodebytes(chance.randbytes(length))[
        :length
    ].decode(),
    "data: base32": lambda chance, length: base64.b32encode(chance.randbytes(length))[
        :length
    ].decode(),
    "data: hex": _sample("0123456789abcdef"),
    "data: hex in capitals": _sample("0123456789ABCDEF"),
    "data: hex bytes": lambda chance, length: _fill(
        length, lambda: f"{chance.randrange(256):02x}", " "
    ),
    "data: hex with escapes": lambda chance, length: _fill(
        length, lambda: f"\\x{chance.randrange(256):02x}"
    ),
    "data: uuids": lambda chance, length: _fill(
        length,
        lambda: "{:08x}-{:04x}-4{:03x}-a{:03x}-{:012x}".format(
            *(chance.getrandbits(n) for n in (32, 16, 12, 12, 48))
        ),
        "\n",
    ),
    "data: dna": _sample("acgt"),
    "data: dna in capitals": _sample("ACGT"),
    "data: dna in lines": lambda chance, length: _fill(
        length, lambda: "".join(chance.choices("ACGT", k=60)), "\n"
    ),
    "data: protein": _sample("ACDEFGHIKLMNPQRSTVWY"),
    "data: letters": _sample(string.ascii_lowercase),
    "data: letters and digits": _sample(string.ascii_letters + string.digits),
    "data: printable": _sample(string.printable),
    "data: marks": _sample(string.punctuation),
    "data: digits": _sample(string.digits),
    "data: bits": _sample("01"),
    "data: bits with spaces": lambda chance, length: _fill(
        length, lambda: chance.choice("01"), " "
    ),
    "data: brackets": _sample("()[]{}"),
    "data: compact json": _json(None, (",", ":")),
    "data: json": _json(None),
    "data: indented json": _json(2),
    "data: json indented by 8": _json(8),
    "data: csv": _csv(","),
    "data: tsv": _csv("\t"),
    "data: numbers in columns": _table,
    "data: integers": lambda chance, length: _fill(
        length, lambda: str(chance.randrange(10 ** chance.randint(1, 9))), ", "
    ),
    "data: urls": lambda chance, length: _fill(length, lambda: _url(chance), "\n"),
    "data: log": _log,
    "data: markdown": _markdown,
    "emoji: single": _sample(EMOJI),
    "emoji: with words": lambda chance, length: _fill(
        length, lambda: chance.choice(WORDS) + " " + chance.choice(EMOJI), " "
    ),
    "emoji: joined": lambda chance, length: _fill(length, lambda: chance.choice(JOINED)),
    "emoji: flags": lambda chance, length: _fill(length, lambda: chance.choice(FLAGS)),
    **{
        f"space: {characters!r}": _run(characters)
        for characters in (" ", "\t", "\n", "\r\n", " \n", "    \n", "\t\t\n")
    },
    "space: spaces and tabs": _sample(" \t"),
    "space: spaces and lines": _sample(" \n"),
    "space: mixed": _sample(" \t\n"),
    **{
        f"run: {one!r}": _run(one)
        for one in string.ascii_letters + string.digits + string.punctuation
    },
    **{f"run: {one!r}": _run(one) for one in "—…─═━█あ中éя😀"},
    "run: 'ab'": _run("ab"),
    "run: '- '": _run("- "),
    "run: 'ha'": _run("ha"),
}


def text_of(kind: str, length: int) -> str:
    """Return a text of this kind and length, the same in every run."""
    return CORPUS[kind](random.Random(f"{kind} {length}"), length)  # noqa: S311 - not for security
