import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;

/** Reads lines of "class version hex", lets Kafka's own class read each message, and prints what it writes again. */
public class KafkaCodec {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(reply(line.split(" ", 3)));
        }
    }

    private static String reply(String[] request) {
        try {
            short version = Short.parseShort(request[1]);
            ByteBuffer input = ByteBuffer.wrap(HexFormat.of().parseHex(request[2]));
            Message message = (Message) Class.forName(request[0]).getConstructor().newInstance();
            message.read(new ByteBufferAccessor(input), version);
            if (input.hasRemaining()) {
                return "left " + input.remaining();
            }
            ByteBuffer output = MessageUtil.toByteBufferAccessor(message, version).buffer();
            byte[] bytes = new byte[output.remaining()];
            output.get(bytes);
            return HexFormat.of().formatHex(bytes);
        } catch (Exception e) {
            return e.toString().replace('\n', ' ');
        }
    }
}
