import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import kafka.tools.StorageTool;

/** Runs Kafka's storage tool once for each line of standard input, whose words are separated by tabs; prints what each
 *  run was refused with, or an empty line. */
public class RunStorageTool {
    public static void main(String[] none) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String said = "";
            try {
                StorageTool.execute(line.split("\t", -1), new PrintStream(OutputStream.nullOutputStream()));
            } catch (Exception refusal) {
                said = refusal.getMessage();
            }
            System.out.println("said:" + said);
        }
    }
}
