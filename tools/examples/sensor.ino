/* A sensor as an Arduino sketch, for an ESP32: publishes the voltage at a pin every five seconds. */
#include <WiFi.h>
#include <WiFiUdp.h>

const char *WIFI_NAME = "name";
const char *WIFI_PASSWORD = "password";
const IPAddress GROUP(239, 255, 24, 16);
const uint16_t PORT = 2416;
const int PIN = 34;
const uint32_t EVERY_MS = 5000;

WiFiUDP udp;

void setup() {
  Serial.begin(115200);
  WiFi.mode(WIFI_STA);  // no access point, by which multicast might leave
  WiFi.setAutoReconnect(true);
  WiFi.begin(WIFI_NAME, WIFI_PASSWORD);
}

void loop() {
  if (WiFi.status() == WL_CONNECTED) {
    char datagram[160];
    // Text that is not fixed, as these are, needs its quotes and backslashes escaped.
    snprintf(datagram, sizeof datagram,
             "{\"topic\":\"sensors/bench/voltage\",\"payload\":{\"millivolts\":%lu,\"rssi\":%d}}",
             (unsigned long)analogReadMilliVolts(PIN), (int)WiFi.RSSI());
    if (!udp.beginPacket(GROUP, PORT) || !udp.print(datagram) || !udp.endPacket()) {
      Serial.println("not sent");
    }
  }
  delay(EVERY_MS);
}
