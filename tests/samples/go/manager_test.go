package sample

import (
	"context"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"replicaset-controller/devserver"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestAManagerDeletesPodsThatCrash(t *testing.T) {
	server := devserver.ForTest(t)
	config, _ := clientcmd.RESTConfigFromKubeConfig(server.Kubeconfig)
	mgr, err := ctrl.NewManager(config, ctrl.Options{})
	if err != nil {
		t.Fatal(err)
	}
	api := mgr.GetClient()
	err = ctrl.NewControllerManagedBy(mgr).For(&corev1.Pod{}).Complete(reconcile.Func(
		func(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
			var pod corev1.Pod
			err := api.Get(ctx, request.NamespacedName, &pod)
			if status := pod.Status.ContainerStatuses; err == nil && len(status) > 0 && status[0].RestartCount > 0 {
				err = api.Delete(ctx, &pod)
			}
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}))
	if err != nil {
		t.Fatal(err)
	}
	go mgr.Start(t.Context())

	namespace, labels := server.Namespace(t), map[string]string{"app": "web"}
	web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: namespace}}
	web.Spec.Selector, web.Spec.Template.Labels = &metav1.LabelSelector{MatchLabels: labels}, labels
	web.Spec.Template.Spec.Containers = []corev1.Container{{Name: "web", Image: "web:1"}}
	if err := api.Create(t.Context(), web); err != nil {
		t.Fatal(err)
	}
	pods, in := &corev1.PodList{}, client.InNamespace(namespace)
	hasPod := func() bool { return api.List(t.Context(), pods, in) == nil && len(pods.Items) == 1 }
	devserver.WaitUntil(t, "the Deployment has a pod", hasPod)
	first := pods.Items[0].Name
	server.SetFate(t, namespace, first, "crash-loop")
	devserver.WaitUntil(t, "another pod replaces it", func() bool { return hasPod() && pods.Items[0].Name != first })
}
