// Figures in large type: a tile is [key, label, figure, unit, note, class].
export default {
  template: `
    <div class="tiles">
      <div v-for="tile in items" :key="tile[0]" class="tile" :class="tile[5]" :data-tile="tile[0]">
        <div class="tile-label">{{ tile[1] }}</div>
        <div class="tile-figure"><span>{{ tile[2] }}</span><small>{{ tile[3] }}</small></div>
        <div class="tile-note" :title="tile[4]">{{ tile[4] }}</div>
      </div>
    </div>`,
  props: { items: Array },
};
