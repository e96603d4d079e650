package lmi.testhost;

import java.util.Properties;

/** Small helpers shared by the classes of the host. */
final class Settings {

    private Settings() {}

    static int integer(Properties properties, String key, int otherwise) {
        String value = properties.getProperty(key);
        return value == null ? otherwise : Integer.parseInt(value.trim());
    }

    static Throwable rootCause(Throwable error) {
        Throwable cause = error;
        while (cause.getCause() != null) {
            cause = cause.getCause();
        }
        return cause;
    }
}
