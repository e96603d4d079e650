// The key, which the tab keeps while it is open, and what the server tells of the model to those who have it.

import { byId } from "./page.js";

const NAME = "lmi-key";

export const keyHeaders = () => {
  const key = sessionStorage.getItem(NAME);
  if (key === null) return {};
  // A header's text has one character for each byte: those of UTF-8, as other clients send them.
  return { Authorization: `Bearer ${String.fromCharCode(...new TextEncoder().encode(key))}` };
};

export const hasKey = () => sessionStorage.getItem(NAME) !== null;

export function forgetKey() {
  sessionStorage.removeItem(NAME);
  location.reload();
}

async function ask(base) {
  const response = await fetch(`${base}playground/setup.json`, { headers: keyHeaders(), cache: "no-store" });
  if (response.ok) return response.json();
  if (response.status !== 401) throw new Error(`The server answered ${response.status}: ${await response.text()}`);
  return null;
}

/** What the server tells; asks for the key until there is one that it takes. */
export async function loadSetup(base) {
  const told = await ask(base);
  if (told !== null) return told;
  if (hasKey()) byId("key-fault").textContent = "The server did not take the key of this tab.";
  sessionStorage.removeItem(NAME);
  byId("key-form").hidden = false;
  byId("key").focus();
  return new Promise((resolve, reject) => {
    byId("key-form").addEventListener("submit", async (event) => {
      event.preventDefault();
      sessionStorage.setItem(NAME, byId("key").value.trim());
      try {
        const setup = await ask(base);
        if (setup === null) {
          sessionStorage.removeItem(NAME);
          byId("key-fault").textContent = "The server does not take this key.";
          byId("key").focus();
          return;
        }
        byId("key-form").hidden = true;
        byId("key").value = "";
        resolve(setup);
      } catch (error) {
        sessionStorage.removeItem(NAME);
        reject(error);
      }
    });
  });
}
