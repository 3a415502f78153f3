package sample

import (
	"context"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"replicaset-controller/devserver"
)

func replicaSet(replicas int32, annotations map[string]string) *appsv1.ReplicaSet {
	labels := map[string]string{"app": "web"}
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: annotations},
				Spec: corev1.PodSpec{
					Containers: []corev1.Container{{Name: "web", Image: "example.invalid/web:1"}},
				},
			},
		},
	}
}

func TestEveryPodIsRenewed(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	client := kubernetes.NewForConfigOrDie(cluster)
	namespace := server.Namespace(t)
	_, err := client.AppsV1().ReplicaSets(namespace).Create(ctx, replicaSet(3, nil), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	uids := func() sets.Set[string] {
		pods, err := ReadyPods(ctx, client, namespace, "app=web")
		if err != nil {
			t.Fatal(err)
		}
		uids := sets.New[string]()
		for _, pod := range pods {
			uids.Insert(string(pod.UID))
		}
		return uids
	}
	devserver.WaitUntil(t, "three pods are ready", func() bool { return uids().Len() == 3 })
	before := uids()

	if err := Renew(ctx, client, namespace, "app=web"); err != nil {
		t.Fatal(err)
	}

	if after := uids(); after.Len() != 3 || after.Intersection(before).Len() != 0 {
		t.Fatalf("before %v, after %v", before, after)
	}
}

func TestAPodThatCrashesIsNotReady(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	client := kubernetes.NewForConfigOrDie(cluster)
	namespace := server.Namespace(t)
	fate := map[string]string{"dev.replicaset-controller/fate": "crash-loop"}

	// An informer works as it does on a cluster.
	factory := informers.NewSharedInformerFactoryWithOptions(
		client, 0, informers.WithNamespace(namespace))
	crashed := make(chan string, 100)
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(_, changed any) {
			for _, status := range changed.(*corev1.Pod).Status.ContainerStatuses {
				if status.State.Waiting != nil {
					crashed <- status.State.Waiting.Reason
				}
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	_, err = client.AppsV1().ReplicaSets(namespace).Create(ctx, replicaSet(1, fate), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case reason := <-crashed:
		if reason != "CrashLoopBackOff" {
			t.Fatal(reason)
		}
	case <-ctx.Done():
		t.Fatal("no pod has crashed")
	}
}

func TestACustomResourceIsWatched(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	namespace := server.Namespace(t)
	client := dynamic.NewForConfigOrDie(cluster)
	definitions := client.Resource(schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	_, err := definitions.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "shops.example.com"},
		"spec": map[string]any{
			"group": "example.com", "scope": "Namespaced",
			"names": map[string]any{"plural": "shops", "kind": "Shop"},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{
					"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}},
		},
	}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	shops := client.Resource(schema.GroupVersionResource{
		Group: "example.com", Version: "v1", Resource: "shops"}).Namespace(namespace)
	watch, err := shops.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()

	_, err = shops.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Shop",
		"metadata": map[string]any{"name": "corner"}, "spec": map[string]any{"size": int64(1)},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	event := <-watch.ResultChan()
	if name := event.Object.(*unstructured.Unstructured).GetName(); name != "corner" {
		t.Fatalf("%v %s", event.Type, name)
	}
}
