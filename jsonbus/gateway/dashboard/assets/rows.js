// A list of any length, of which the server sends what is in sight: `rows` are those from `first` on,
// of `total`. Text stays text: nothing here is ever HTML.
//
// A row is [key, cells, depth, open (null if there is nothing below it), class]; a cell is its text,
// or [text, class].
const OVERSCAN = 12;

export default {
  template: `
    <div class="rows" :class="{ 'is-empty': total === 0 }" role="table" :aria-rowcount="total"
         :aria-label="label" ref="box" @scroll.passive="look">
      <div class="rows-head" role="row">
        <div v-for="column in columns" :key="column[0]" role="columnheader" class="cell"
             :class="'c-' + column[0]">{{ column[1] }}</div>
      </div>
      <div v-if="total === 0" class="rows-empty">{{ empty }}</div>
      <div v-else class="rows-body" role="rowgroup" :style="{ height: total * height + 'px' }">
        <div v-for="([key, cells, depth, open, style], index) in rows" :key="key" role="row"
             tabindex="0" class="line" :class="[style, { 'is-chosen': key === chosen }]" :data-key="key"
             :aria-expanded="open === null ? undefined : open"
             :style="{ transform: 'translateY(' + (first + index) * height + 'px)', height: height + 'px' }"
             @click="$emit('pick', key)" @keydown.enter="$emit('pick', key)"
             @keydown.space.prevent="$emit('pick', key)">
          <div v-for="(cell, number) in cells" :key="number" role="cell" class="cell"
               :class="['c-' + columns[number][0], Array.isArray(cell) ? cell[1] : '']"
               :style="depth && inset(number) ? { paddingLeft: depth * indent + 'px' } : null">
            <span v-if="number === 0 && open !== null" class="twig" :class="{ open: open }"></span>
            <span v-else-if="number === 0 && tree" class="twig none"></span>
            <span class="text" :title="Array.isArray(cell) ? cell[0] : cell">{{ Array.isArray(cell) ? cell[0] : cell }}</span>
          </div>
        </div>
      </div>
    </div>`,
  props: {
    columns: Array,
    rows: Array,
    first: Number,
    total: Number,
    chosen: String,
    empty: String,
    label: String,
    tree: Boolean,
    tall: { type: Number, default: 34 },
    tallNarrow: { type: Number, default: 54 },
  },
  data: () => ({ narrow: false, told: "" }),
  computed: {
    height() {
      return this.narrow ? this.tallNarrow : this.tall;
    },
    indent() {
      return this.narrow ? 10 : 16;
    },
  },
  mounted() {
    this.media = window.matchMedia("(max-width: 720px)");
    this.narrow = this.media.matches;
    this.onMedia = () => {
      this.narrow = this.media.matches;
      this.look();
    };
    this.media.addEventListener("change", this.onMedia);
    this.observer = new ResizeObserver(() => this.look());
    this.observer.observe(this.$refs.box);
  },
  beforeUnmount() {
    this.media.removeEventListener("change", this.onMedia);
    this.observer.disconnect();
    clearTimeout(this.timer);
  },
  methods: {
    inset(number) {
      // On a narrow screen the value stands below the name.
      return number === 0 || (this.narrow && this.columns[number][0] === "value");
    },
    look() {
      // At most ten times a second, and once more when the scrolling has ended.
      if (this.timer) return;
      this.timer = setTimeout(() => {
        this.timer = null;
        const box = this.$refs.box;
        if (!box) return;
        const first = Math.max(0, Math.floor(box.scrollTop / this.height) - OVERSCAN);
        const count = Math.ceil(box.clientHeight / this.height) + 2 * OVERSCAN;
        const told = first + "+" + count;
        if (told === this.told) return;
        this.told = told;
        this.$emit("look", [first, count]);
      }, 100);
    },
    to_top() {
      this.$refs.box.scrollTop = 0;
    },
  },
};
