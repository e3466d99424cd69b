import java.io.FileReader;
import java.util.Properties;
import kafka.server.KafkaConfig;

/** What Apache Kafka says to each of the given properties files when it starts with it, one line for each. */
public class ReadConfigs {
    public static void main(String[] files) throws Exception {
        for (String file : files) {
            Properties properties = new Properties();
            try (FileReader reader = new FileReader(file)) {
                properties.load(reader);
            }
            String said = "";
            try {
                KafkaConfig.fromProps(properties, false);
            } catch (RuntimeException refusal) {
                said = refusal.getMessage();
            }
            System.out.println(file + "\t" + said);
        }
    }
}
