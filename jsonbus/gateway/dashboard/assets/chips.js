// Things to be switched on and off: a chip is [key, label, figure, colour or "" while it is off].
export default {
  template: `
    <div class="chips">
      <button v-for="chip in items" :key="chip[0]" type="button" class="chip" :data-key="chip[0]"
              :class="{ on: chip[3] !== '' }" :aria-pressed="chip[3] !== ''"
              :style="chip[3] ? { '--chip': chip[3] } : null" @click="$emit('pick', chip[0])">
        <i></i><span class="chip-label" :title="chip[1]">{{ chip[1] }}</span><b>{{ chip[2] }}</b>
      </button>
    </div>`,
  props: { items: Array },
};
