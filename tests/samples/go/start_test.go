package sample

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"replicaset-controller/devserver"
)

func TestAServerStartsAndStops(t *testing.T) {
	server := devserver.ForTest(t, "--nodes=1")
	answer, err := http.Get(server.URL + "/version")
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatal(answer, err)
	}
	answer.Body.Close()
	server.Stop()
	if _, err := http.Get(server.URL + "/version"); err == nil {
		t.Fatal("the server still answers")
	}
	if _, err := os.Stat(server.KubeconfigPath); !os.IsNotExist(err) {
		t.Fatal("the kubeconfig is still there")
	}
}

func TestAServerEndsWithItsProgram(t *testing.T) {
	program := exec.Command(os.Args[0])
	program.Env = append(os.Environ(), "ONLY_START=1")
	output, err := program.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(output)
	lines.Scan()
	url := lines.Text()
	answers := func() bool {
		answer, err := http.Get(url + "/version")
		if err == nil {
			answer.Body.Close()
		}
		return err == nil
	}
	if !answers() {
		t.Fatalf("no server at %q", url)
	}
	program.Process.Kill()
	program.Wait()
	devserver.WaitUntil(t, "the server is gone", func() bool { return !answers() })
}

// failing is a test that has failed.
type failing struct {
	testing.TB
	log     string
	cleanup func()
}

func (f *failing) Failed() bool                { return true }
func (f *failing) Logf(text string, of ...any) { f.log += fmt.Sprintf(text, of...) }
func (f *failing) Cleanup(do func())           { f.cleanup = do }

func TestAFailedTestShowsTheLogOfTheServer(t *testing.T) {
	failed := &failing{TB: t}
	namespace := server.Namespace(failed)
	web := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	labels := map[string]string{"app": "web"}
	web.Spec.Selector, web.Spec.Template.Labels = &metav1.LabelSelector{MatchLabels: labels}, labels
	web.Spec.Template.Spec.Containers = []corev1.Container{{Name: "web", Image: "example.invalid/web:1"}}
	sets := kubernetes.NewForConfigOrDie(cluster).AppsV1().ReplicaSets(namespace)
	if _, err := sets.Create(t.Context(), web, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	said := namespace + "/web: new"
	devserver.WaitUntil(t, "the server logs it", func() bool { return strings.Contains(server.Log(), said) })
	failed.cleanup()
	if !strings.Contains(failed.log, said) {
		t.Fatalf("the log is %q", failed.log)
	}
}

func TestTheReadmeHasTheExample(t *testing.T) {
	example, err := os.ReadFile("manager_test.go")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../../../config/packages/go/README.md")
	if err != nil || !strings.Contains(string(readme), string(example)) {
		t.Fatal("README.md has another example than manager_test.go: ", err)
	}
}

func TestAServerThatDoesNotStartSaysWhy(t *testing.T) {
	if _, err := devserver.Start("--no-such-flag"); err == nil || !strings.Contains(err.Error(), "--no-such-flag") {
		t.Fatal(err)
	}
	t.Setenv("REPLICASET_CONTROLLER", "/no/such/program")
	if _, err := devserver.Start(); err == nil || !strings.Contains(err.Error(), "/no/such/program") {
		t.Fatal(err)
	}
}
