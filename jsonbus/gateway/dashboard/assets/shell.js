// What a page does by itself: its colours, which the browser remembers; whether it is in sight; and
// what to do when the gateway does not know its session any more.
const KEY = "jsonbus-theme";
const THEMES = { auto: null, light: false, dark: true };

export default {
  template: `
    <button type="button" class="theme" :data-theme="theme" :title="'Colours: ' + theme"
            :aria-label="'Colours: ' + theme" @click="turn"><i :class="'icon-' + theme"></i></button>`,
  data: () => ({ theme: "auto" }),
  mounted() {
    try {
      const kept = window.localStorage.getItem(KEY);
      if (kept in THEMES) this.theme = kept;
    } catch {}
    this.apply();
    this.onVisible = () => this.$emit("visible", document.visibilityState === "visible");
    document.addEventListener("visibilitychange", this.onVisible);
    if (document.visibilityState !== "visible") this.onVisible();
    this.onLost = async () => {
      try {
        const answer = await fetch("/", { method: "HEAD", cache: "no-store" });
        if (answer.headers.has("jsonbus-login")) window.location.reload();
      } catch {}
    };
    // NiceGUI makes the socket when everything in the page is mounted.
    this.$nextTick(() => window.socket.on("connect_error", this.onLost));
  },
  beforeUnmount() {
    document.removeEventListener("visibilitychange", this.onVisible);
    window.socket?.off("connect_error", this.onLost);
  },
  methods: {
    turn() {
      const names = Object.keys(THEMES);
      this.theme = names[(names.indexOf(this.theme) + 1) % names.length];
      try {
        window.localStorage.setItem(KEY, this.theme);
      } catch {}
      this.apply();
    },
    apply() {
      setDark(THEMES[this.theme]);
    },
  },
};
