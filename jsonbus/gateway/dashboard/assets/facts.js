// Names and values in two columns: a fact is [name, text, class].
export default {
  template: `
    <dl class="facts">
      <template v-for="fact in items" :key="fact[0]">
        <dt>{{ fact[0] }}</dt><dd :class="fact[2]">{{ fact[1] }}</dd>
      </template>
    </dl>`,
  props: { items: Array },
};
